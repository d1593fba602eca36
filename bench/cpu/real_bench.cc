// The codecs on tensors as networks save them: sides that are no multiples of 8, f16 and bf16,
// channels_last, views.
//
//   real_bench THREADS ROUNDS MEBIBYTES [WORD...]
//
// Prints a line of JSON for each tensor, memory, dtype and codec whose line of these holds every
// WORD. Tensors have about so many MiB. Each round copies, packs and unpacks
// once; figures are medians over the rounds of the copy's time over ours. Packed bytes are compared
// with those of the same values as rows, what is unpacked bit by bit with what rows unpack to.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/element.h"
#include "base/stream.h"
#include "base/strided.h"
#include "tuckfold/codec.h"
#include "tuckfold/error.h"
#include "tuckfold/version.h"

namespace tuckfold {
namespace {

using Json = nlohmann::ordered_json;

enum class Values : unsigned char { Relu, Mask, Bytes, Whole, PoolIndex };

struct Case {
  const char* codec;
  Values values;
};
constexpr Case kFloatCases[] = {
    {"dct_chop(keep=4)", Values::Relu},
    {"dct_quant(rate=4)", Values::Relu},
    {"dct_chop(keep=4) | block_quant(bits=8)", Values::Relu},
    {"block_quant(bits=4)", Values::Relu},
    {"bounded(rel=0.01)", Values::Relu},
    {"nonzero_quant(bits=3)", Values::Relu},
    {"positive", Values::Relu},
    {"mask", Values::Mask},
    {"bytes_of(scale=1)", Values::Bytes},
};
constexpr Case kWholeCases[] = {
    {"bits(width=8)", Values::Whole},
    {"pool_index(kernel=3, stride=2, padding=1, width=128)", Values::PoolIndex},
};

struct Shaped {
  const char* name;
  Shape each;         // of a sample
  bool channels;      // whether channels_last is one of its memories
  const char* sides;  // reference, whole or odd
};
const std::vector<Shaped>& tensors() {
  static const std::vector<Shaped> all = {
      {"64x64x64", {64, 64, 64}, true, "reference"}, {"64x56x56", {64, 56, 56}, true, "odd"},
      {"256x28x28", {256, 28, 28}, true, "odd"},     {"512x14x14", {512, 14, 14}, true, "odd"},
      {"1024x7x7", {1024, 7, 7}, true, "odd"},       {"197x384", {197, 384}, false, "odd"},
      {"1024x768", {1024, 768}, false, "whole"}};
  return all;
}

// ---- memory -------------------------------------------------------------------------------------

struct Arranged {
  Shape strides;
  std::int64_t elems;  // that the storage has
};

// "rows", "channels_last", "transposed": the last two axes change places, "padded": a row is
// followed by eight elements that are not of the tensor.
Arranged arrange(const Shape& shape, const std::string& memory) {
  std::vector<std::size_t> order(shape.rank());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (memory == "channels_last") std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  if (memory == "transposed") std::swap(order[order.size() - 1], order[order.size() - 2]);
  Arranged result{shape, 1};
  for (std::size_t i = order.size(); i-- > 0;) {
    result.strides[order[i]] = result.elems;
    result.elems *= shape[order[i]];
    if (i + 1 == order.size() && memory == "padded") result.elems += 8;
  }
  return result;
}

class Tensor {
 public:
  Tensor(DType dtype, const Shape& shape, const std::string& memory)
      : dtype_(dtype), shape_(shape), arranged_(arrange(shape, memory)) {
    const std::size_t bytes = static_cast<std::size_t>(arranged_.elems) * size_bytes(dtype);
    constexpr std::size_t kHuge = std::size_t{2} << 20;
    const std::size_t room = (bytes + kHuge - 1) / kHuge * kHuge;
    storage_.reset(static_cast<std::byte*>(std::aligned_alloc(kHuge, room)));
    if (storage_ == nullptr) throw std::bad_alloc();
    std::memset(storage_.get(), 0, room);
  }
  TensorView view() const { return {storage_.get(), dtype_, shape_, arranged_.strides}; }
  ConstTensorView const_view() const { return {storage_.get(), dtype_, shape_, arranged_.strides}; }
  std::size_t bytes() const {
    return static_cast<std::size_t>(shape_.elems()) * size_bytes(dtype_);
  }
  std::byte* data() const { return storage_.get(); }
  // The elements' bytes in row-major order.
  std::vector<std::byte> row_major() const {
    std::vector<std::byte> all(bytes());
    const FlatReader reader(const_view());
    reader.gather_bytes(0, reader.elems(), all.data());
    return all;
  }
  void fill(std::span<const std::byte> row_major) {
    const FlatWriter writer(view());
    writer.scatter_bytes(0, writer.elems(), row_major.data());
  }

 private:
  struct Free {
    void operator()(std::byte* pointer) const { std::free(pointer); }
  };
  DType dtype_;
  Shape shape_;
  Arranged arranged_;
  std::unique_ptr<std::byte, Free> storage_;
};

// Half of the values of an activation are 0; neighbours are alike.
std::vector<std::byte> values_of(Values kind, DType dtype, const Shape& shape) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto elems = static_cast<std::size_t>(shape.elems());
  const std::int64_t cols = shape[shape.rank() - 1], rows = shape[shape.rank() - 2];
  const std::size_t width = size_bytes(dtype);
  std::vector<std::byte> all(elems * width);
  float value = 0;
  // About a million values, and then the same again.
  const auto plane = static_cast<std::size_t>(rows * cols);
  const std::size_t period = std::min(((std::size_t{1} << 20) / plane + 1) * plane, elems);
  for (std::size_t i = 0; i < period; ++i) {
    value = 0.8f * value + 0.6f * normal(random);
    double number = std::max(value, 0.0f);
    if (kind == Values::Mask) number = value > 0 ? 1 : 0;
    if (kind == Values::Bytes || kind == Values::Whole)
      number = static_cast<double>(random() % 256);
    if (kind == Values::PoolIndex) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t y = at / cols % rows * 2, x = at % cols * 2;
      number = static_cast<double>(y * 128 + x);
    }
    const std::uint64_t bits = element_bits(dtype, number);
    std::memcpy(&all[i * width], &bits, width);
  }
  for (std::size_t i = period; i < elems; i += period) {
    std::memcpy(&all[i * width], all.data(), std::min(period, elems - i) * width);
  }
  return all;
}

// ---- time ---------------------------------------------------------------------------------------

// One thread's time is that of its processor, which other programs take less from.
double seconds_of(int threads, const std::function<void()>& work) {
  const auto now = [&] {
    timespec time{};
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double root_mean_square_error(DType dtype, std::span<const std::byte> a,
                              std::span<const std::byte> b) {
  const std::size_t width = size_bytes(dtype);
  double sum = 0, all = 0;
  const std::size_t some = std::min(a.size(), width << 20);
  for (std::size_t at = 0; at < some; at += width) {
    std::uint64_t x = 0, y = 0;
    std::memcpy(&x, &a[at], width);
    std::memcpy(&y, &b[at], width);
    const double value = element_value(dtype, x), error = element_value(dtype, y) - value;
    sum += error * error;
    all += value * value;
  }
  return std::sqrt(sum / std::max(all, 1e-30));
}

struct Settings {
  int threads, rounds;
  std::int64_t mebibytes;
  std::vector<std::string> words;

  bool wants(const Json& row) const {
    const std::string line = row.dump();
    return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
      return line.find(word) != std::string::npos;
    });
  }
};

struct Rows {  // what the same values give as rows
  std::vector<std::byte> packed, unpacked;
};

void measure(const Settings& settings, Json row, const Plan& plan, const Tensor& in,
             const Tensor& out, Rows& rows) {
  std::vector<std::byte> packed(plan.layout().max_bytes), workspace(plan.layout().workspace_bytes);
  const RunOptions options{.threads = settings.threads, .workspace = workspace};
  std::size_t size = 0;
  const std::function<void()> works[] = {
      [&] { stream_copy(out.data(), in.data(), in.bytes(), settings.threads); },
      [&] { size = plan.pack(in.const_view(), packed, options); },
      [&] {
        plan.unpack({packed.data(), size}, out.view(), options);
      }};
  for (const auto& work : works) work();
  const std::vector<std::byte> bytes(packed.begin(),
                                     packed.begin() + static_cast<std::ptrdiff_t>(size));
  const std::vector<std::byte> unpacked = out.row_major();
  if (row["memory"] == "rows") {
    rows = {bytes, unpacked};
    row["relative_error"] =
        root_mean_square_error(plan.dtype(), in.row_major(), std::span(unpacked));
  } else if (bytes != rows.packed || unpacked != rows.unpacked) {
    std::cerr << "real_bench: not what rows give: " << row << '\n';
    std::exit(1);
  }
  row["crc32c"] = {crc32c(bytes), crc32c(unpacked)};
  std::vector<double> seconds[3], pack_of_copy, unpack_of_copy;
  for (int round = 0; round < settings.rounds; ++round) {
    double took[3];
    for (std::size_t i = 0; i < 3; ++i) {
      took[i] = seconds_of(settings.threads, works[i]);
      seconds[i].push_back(took[i]);
    }
    pack_of_copy.push_back(took[0] / took[1]);
    unpack_of_copy.push_back(took[0] / took[2]);
  }
  const double gigabytes = static_cast<double>(in.bytes()) * 1e-9;
  row["ratio"] = static_cast<double>(in.bytes()) / static_cast<double>(size);
  row["copy_gbps"] = gigabytes / median(seconds[0]);
  row["pack_gbps"] = gigabytes / median(seconds[1]);
  row["unpack_gbps"] = gigabytes / median(seconds[2]);
  row["pack_of_copy"] = median(pack_of_copy);
  row["unpack_of_copy"] = median(unpack_of_copy);
  std::cout << row.dump() << std::endl;
}

void measure_all(const Settings& settings) {
  for (const Shaped& tensor : tensors()) {
    Shape shape{0};
    for (const std::int64_t axis : tensor.each) shape.push_back(axis);
    std::vector<std::string> memories = {"rows", "transposed", "padded"};
    if (tensor.channels) memories.insert(memories.begin() + 1, "channels_last");
    const auto run = [&](const Case& of, DType dtype) {
      const std::int64_t each = tensor.each.elems() * static_cast<std::int64_t>(size_bytes(dtype));
      shape[0] = std::max<std::int64_t>((settings.mebibytes << 20) / each, 1);
      const CodecSpec spec = CodecSpec::parse(of.codec);
      const auto row_of = [&](const std::string& memory) {
        return Json{{"tensor", tensor.name},
                    {"sides", tensor.sides},
                    {"shape", to_string(shape)},
                    {"memory", memory},
                    {"dtype", std::string(to_string(dtype))},
                    {"codec", of.codec},
                    {"threads", settings.threads},
                    {"cpu_target", cpu_target()}};
      };
      if (std::none_of(memories.begin(), memories.end(),
                       [&](const std::string& m) { return settings.wants(row_of(m)); })) {
        return;
      }
      const Plan plan(spec, dtype, shape);
      const std::vector<std::byte> values = values_of(of.values, dtype, shape);
      Rows rows;
      for (const std::string& memory : memories) {
        if (memory != "rows" && !settings.wants(row_of(memory))) continue;
        Tensor in(dtype, shape, memory);
        const Tensor out(dtype, shape, memory);
        in.fill(values);
        measure(settings, row_of(memory), plan, in, out, rows);
      }
    };
    for (const DType dtype : {DType::F32, DType::F16, DType::BF16}) {
      for (const Case& of : kFloatCases) run(of, dtype);
    }
    for (const Case& of : kWholeCases) {
      if (tensor.channels) run(of, DType::I64);
    }
  }
}

}  // namespace
}  // namespace tuckfold

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fputs("real_bench THREADS ROUNDS MEBIBYTES [WORD...]\n", stderr);
    return 2;
  }
  try {
    tuckfold::measure_all({.threads = std::atoi(argv[1]),
                           .rounds = std::atoi(argv[2]),
                           .mebibytes = std::atoi(argv[3]),
                           .words = {argv + 4, argv + argc}});
  } catch (const tuckfold::Error& error) {
    std::cerr << "real_bench: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
