// dct_chop beside PyTorch's ways to the same values, in one process and on the same tensors.
//
//   torch_peer [--quick] [--huge] [100x3x256 …]
//
// Prints a line of JSON about the libraries, then one for each shape, keep and thread count. Memory
// is as torch's allocator hands it out, small pages and all, unless --huge asks for huge pages.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <sys/mman.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/stream.h"
#include "tuckfold/codec.h"
#include "tuckfold/portable.h"
#include "tuckfold/version.h"

namespace {

using at::Tensor;
using namespace std::string_literals;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kBlock = 8;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr double kTolerance = 1e-5;  // of the range of what ours gives
// A timed piece lasts at least this long. Before it, the last contender's threads fall asleep
// (those of libgomp spin for milliseconds, on cores that the next one needs), and short calls are
// made once untimed to wake up their own.
constexpr double kMinSampleSeconds = 3e-3;
constexpr auto kRest = std::chrono::milliseconds(20);

struct Size {
  std::int64_t batch, channels, side;
};
constexpr Size kSizes[] = {{100, 3, 32},  {100, 3, 64},  {100, 3, 128},
                           {100, 3, 256}, {100, 3, 512}, {5000, 3, 64}};

struct Options {
  std::vector<Size> sizes;
  std::vector<int> keeps = {2, 3, 4, 5, 6, 7};
  bool quick = false, huge = false;
};

// ---- timing -------------------------------------------------------------------------------------

// One way to pack or unpack. What it returns, `arrange` brings into the order that ours has.
struct Form {
  std::string name;
  std::function<Tensor()> run = {};
  std::function<Tensor(const Tensor&)> arrange = [](const Tensor& out) { return out; };
  double difference = 0;  // from ours, of the range
  int times = 1;          // calls in a timed piece
  std::vector<double> seconds = {};

  double median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
};

double seconds_of(const Form& form, int times) {
  const auto start = Clock::now();
  for (int i = 0; i < times; ++i) form.run();
  return std::chrono::duration<double>(Clock::now() - start).count() / times;
}

// Rounds in which each form has its turn, so that whatever else the machine does meets all alike.
void time_all(const std::vector<Form*>& forms, bool quick) {
  for (Form* form : forms) {
    const double once = std::min(seconds_of(*form, 1), seconds_of(*form, 1));
    form->times = static_cast<int>(std::ceil(kMinSampleSeconds / std::max(once, 1e-7)));
  }
  const int rounds = quick ? 2 : 6;  // at least, and more of short ones
  const auto end = Clock::now() + std::chrono::milliseconds(quick ? 0 : 2500);
  for (int round = 0; round < rounds || Clock::now() < end; ++round) {
    for (Form* form : forms) {
      std::this_thread::sleep_for(kRest);
      if (form->times > 1) form->run();
      form->seconds.push_back(seconds_of(*form, form->times));
    }
  }
}

// ---- the forms ----------------------------------------------------------------------------------

Tensor tensor_of(const tuckfold::Matrix& matrix) {
  return at::from_blob(const_cast<float*>(matrix.values.data()), {matrix.rows, matrix.cols})
      .clone();
}

tuckfold::TensorView view_of(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  return {tensor.mutable_data_ptr(), tuckfold::DType::F32,
          tuckfold::Shape(std::span(sizes.data(), sizes.size()))};
}

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

// The tensors of one shape and keep, and every form over them. Forms with out= share their outputs.
class Contest {
 public:
  Contest(const Size& size, int keep, int threads, bool huge)
      : spec_(tuckfold::CodecSpec::parse("dct_chop(keep=" + std::to_string(keep) + ")")),
        huge_(huge),
        side_(size.side),
        planes_(size.batch * size.channels),
        keep_(keep) {
    run_.threads = threads;
    image_ = make({size.batch, size.channels, side_, side_}).uniform_();
    restored_ = make(image_.sizes());
    packed_ = make({size.batch, size.channels, kept(), kept()});
    input_ = make(packed_.sizes());
    scratch_ = make({planes_ * side_ * kept()});  // the product between the two, in any order
    add_ours();
    add_paper();
    add_blocked();
    add_conv2d();
  }

  Form copy{.name = "copy"};
  std::vector<Form> pack, unpack;  // ours first

  // Calls every form once, on memory that holds no result, and compares with ours.
  void check() {
    const Tensor want_packed = input_.copy_(pack[0].run());
    const Tensor want_restored = unpack[0].run().clone();
    for (Form& form : pack) check_one(form, packed_, want_packed);
    for (Form& form : unpack) check_one(form, restored_, want_restored);
    restored_.fill_(kNaN);
    copy.run();
    if (!restored_.equal(image_)) throw std::runtime_error("the copy is no copy");
  }

 private:
  std::int64_t kept() const { return side_ / kBlock * keep_; }
  std::int64_t block_rows() const { return planes_ * (side_ / kBlock); }

  Tensor make(at::IntArrayRef sizes) const {
    Tensor tensor = at::empty(sizes);
    if (huge_) {
      const auto first = reinterpret_cast<std::uintptr_t>(tensor.mutable_data_ptr());
      const auto page = first / 4096 * 4096;
      ::madvise(reinterpret_cast<void*>(page), first + tensor.nbytes() - page, MADV_HUGEPAGE);
    }
    return tensor.zero_();  // page faults are paid here
  }

  static void check_one(Form& form, Tensor& out, const Tensor& want) {
    out.fill_(kNaN);
    const Tensor got = form.arrange(form.run()).reshape(want.sizes());
    const double range = (want.max() - want.min()).item<double>();
    form.difference = (got - want).abs().max().item<double>() / range;
    if (!(form.difference <= kTolerance)) {  // NaN too
      throw std::runtime_error(form.name + " differs from ours");
    }
  }

  void add(const char* name, std::function<Tensor()> run_pack, std::function<Tensor()> run_unpack) {
    pack.push_back({.name = name, .run = std::move(run_pack)});
    unpack.push_back({.name = name, .run = std::move(run_unpack)});
  }

  void add_ours() {
    copy.run = [this] {
      tuckfold::stream_copy(restored_.mutable_data_ptr(), image_.const_data_ptr(), image_.nbytes(),
                            run_.threads);
      return restored_;
    };
    const auto run_pack = [this] {
      return tuckfold::pack(spec_, view_of(image_), bytes_of(packed_), run_), packed_;
    };
    const auto run_unpack = [this] {
      return tuckfold::unpack(spec_, bytes_of(input_), view_of(restored_), run_), restored_;
    };
    add("ours", run_pack, run_unpack);
  }

  // Equations 4 and 6 with matrices made beforehand: as the paper writes them, which allocates both
  // products on every call, and with out=.
  void add_paper() {
    const tuckfold::MatmulForm form = tuckfold::matmul_form(spec_, side_, side_);
    const Tensor lhs = tensor_of(form.lhs), rhs = tensor_of(form.rhs);
    const Tensor back_lhs = tensor_of(form.back_lhs), back_rhs = tensor_of(form.back_rhs);
    add(
        "paper", [=, this] { return at::matmul(lhs, at::matmul(image_, rhs)); },
        [=, this] { return at::matmul(back_lhs, at::matmul(input_, back_rhs)); });
    const auto batch = image_.size(0), channels = image_.size(1);
    Tensor cut_cols = scratch_.view({batch, channels, side_, kept()});
    Tensor cut_rows = scratch_.view({batch, channels, kept(), side_});
    const auto run_pack = [=, this]() mutable {
      at::matmul_out(cut_cols, image_, rhs);
      return at::matmul_out(packed_, lhs, cut_cols);
    };
    const auto run_unpack = [=, this]() mutable {
      at::matmul_out(cut_rows, input_, back_rhs);
      return at::matmul_out(restored_, back_lhs, cut_rows);
    };
    add("paper_out", run_pack, run_unpack);
  }

  // The 8 x 8 matrix along one axis, then along the other, with out=: work that does not grow with
  // the side. Of the orders and calls tried, these are torch's fastest.
  void add_blocked() {
    const tuckfold::MatmulForm form = tuckfold::matmul_form(spec_, kBlock, kBlock);
    const Tensor lhs = tensor_of(form.lhs).expand({block_rows(), keep_, kBlock});
    const Tensor back_lhs = tensor_of(form.back_lhs).expand({block_rows(), kBlock, keep_});
    const Tensor rhs = tensor_of(form.rhs), back_rhs = tensor_of(form.back_rhs);
    const Tensor image = image_.view({block_rows(), kBlock, side_});
    const Tensor input = input_.view({-1, keep_});
    Tensor packed = packed_.view({-1, keep_});
    Tensor restored = restored_.view({block_rows(), kBlock, side_});
    Tensor cut_rows = scratch_.view({block_rows(), keep_, side_});
    Tensor runs = scratch_.view({-1, kBlock});  // the same
    const auto run_pack = [=]() mutable {
      at::bmm_out(cut_rows, lhs, image);
      return at::mm_out(packed, runs, rhs);
    };
    const auto run_unpack = [=]() mutable {
      at::mm_out(runs, input, back_rhs);
      return at::bmm_out(restored, back_lhs, cut_rows);
    };
    add("blocked", run_pack, run_unpack);
  }

  // Each coefficient is a filter, so packed values are ordered by coefficient.
  void add_conv2d() {
    const Tensor lhs = tensor_of(tuckfold::matmul_form(spec_, kBlock, kBlock).lhs);
    const std::int64_t blocks = side_ / kBlock, coefs = keep_ * keep_;
    const Tensor filters = at::einsum("ux,vy->uvxy", {lhs, lhs}).contiguous();
    const Tensor weight = filters.view({coefs, 1, kBlock, kBlock});
    const Tensor back = filters.view({coefs, kBlock * kBlock}).t().contiguous();
    const Tensor back_weight = back.view({kBlock * kBlock, coefs, 1, 1});
    const Tensor image = image_.view({planes_, 1, side_, side_});
    const Tensor planar = at::conv2d(image, weight, {}, kBlock);
    add(
        "conv2d", [=] { return at::conv2d(image, weight, {}, kBlock); },
        [=] { return at::pixel_shuffle(at::conv2d(planar, back_weight), kBlock); });
    pack.back().arrange = [=, this](const Tensor& out) {
      return out.view({planes_, keep_, keep_, blocks, blocks}).permute({0, 3, 1, 4, 2});
    };
  }

  tuckfold::CodecSpec spec_;
  tuckfold::RunOptions run_;
  bool huge_;
  std::int64_t side_, planes_, keep_;
  Tensor image_, packed_, input_, restored_, scratch_;
};

// ---- results ------------------------------------------------------------------------------------

Json times_of(const Form& form) {
  return {{"best_s", *std::min_element(form.seconds.begin(), form.seconds.end())},
          {"median_s", form.median()},
          {"difference", form.difference}};
}

// How many times as fast ours is as each of the others, and as the fastest of them, by medians.
void add_direction(Json& row, const std::string& name, const std::vector<Form>& forms) {
  const Form& ours = forms.front();
  const Form* best = &forms[1];
  Json times, factors;
  for (const Form& form : forms) {
    times[form.name] = times_of(form);
    if (&form == &ours) continue;
    factors[form.name] = form.median() / ours.median();
    if (form.median() < best->median()) best = &form;
  }
  factors["best_torch"] = factors[best->name];
  row.update({{name, times}, {name + "_factor", factors}, {name + "_best_torch", best->name}});
}

Json measure(const Size& size, int keep, int threads, const Options& options) {
  at::set_num_threads(threads);
  at::manual_seed(1);
  Contest contest(size, keep, threads, options.huge);
  contest.check();
  std::vector<Form*> forms = {&contest.copy};
  for (Form& form : contest.pack) forms.push_back(&form);
  for (Form& form : contest.unpack) forms.push_back(&form);
  time_all(forms, options.quick);
  Json row = {{"shape", {size.batch, size.channels, size.side, size.side}},
              {"keep", keep},
              {"threads", threads},
              {"rounds", contest.copy.seconds.size()},
              {"copy", times_of(contest.copy)}};
  add_direction(row, "pack", contest.pack);
  add_direction(row, "unpack", contest.unpack);
  return row;
}

Options parse(std::span<char*> words) {
  Options options;
  for (const char* word : words) {
    Size n{};
    if (word == "--quick"s) {
      options.quick = true;
    } else if (word == "--huge"s) {
      options.huge = true;
    } else if (std::sscanf(word, "%ldx%ldx%ld", &n.batch, &n.channels, &n.side) == 3 &&
               std::min({n.batch, n.channels, n.side}) > 0 && n.side % kBlock == 0) {
      options.sizes.push_back(n);
    } else {
      throw std::runtime_error("unknown argument '"s + word + "'; see the top of torch_peer.cc");
    }
  }
  if (options.quick) options.keeps = {2, 7};
  if (options.sizes.empty()) options.sizes.assign(kSizes, kSizes + (options.quick ? 2 : 6));
  return options;
}

}  // namespace

int main(int count, char** arguments) try {
  const c10::InferenceMode no_gradients;
  const Options options = parse(std::span(arguments, static_cast<std::size_t>(count)).subspan(1));
  std::cout << Json{{"torch", TORCH_VERSION},
                    {"tuckfold", tuckfold::version()},
                    {"cpu_target", tuckfold::cpu_target()},
                    {"pages", options.huge ? "huge where possible" : "as torch allocates"},
                    {"tolerance", kTolerance}}
            << std::endl;
  for (const Size& size : options.sizes) {
    for (const int keep : options.keeps) {
      for (const int n : {1, 2}) std::cout << measure(size, keep, n, options) << std::endl;
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "torch_peer: " << error.what() << '\n';
  return 1;
}
