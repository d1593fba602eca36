// Dataset files beside the codec alone, in one process and on the same samples.
//
//   file_bench SPEC THREADS SECONDS FOLDER INPUT...
//
// Packs the first array of the inputs to FOLDER/bench.tuck and reads it back, and prints one line
// of JSON. Speeds are in bytes of samples, best of the rounds: of the codec in memory; of reading
// the inputs from the page cache; of packing from the inputs to a file; of reading samples in
// order. Then the time of reading one sample at random. What is read is compared with what the
// codec gives.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/in_order.h"
#include "container/resume.h"
#include "inputs/source.h"
#include "tuckfold/container.h"
#include "tuckfold/error.h"

namespace tuckfold {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kMemoryBytes = 256 << 20;  // that the codec alone packs: no cache holds them
constexpr std::int64_t kBatchBytes = 64 << 20;    // that are read at a time
constexpr int kReads = 20000;

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Rounds until so many seconds are over, three at least; the quickest. What prepares one is not
// timed.
double best_of(
    double seconds, const std::function<void()>& work,
    const std::function<void()>& prepare = [] {}) {
  double best = 1e30, sum = 0;
  for (int round = 0; round < 3 || sum < seconds; ++round) {
    prepare();
    const double took = seconds_of(work);
    best = std::min(best, took);
    sum += took;
  }
  return best;
}

struct Bench {
  std::unique_ptr<Source> source;
  CodecSpec spec;
  int threads;
  double seconds;
  std::string path;
  std::int64_t chunk;  // samples of one

  const SourceArray& array() const { return source->arrays()[0]; }
  std::size_t each() const { return array().sample_bytes(); }
  std::size_t chunk_bytes() const { return static_cast<std::size_t>(chunk) * each(); }
  double all_bytes() const {
    return static_cast<double>(source->samples()) * static_cast<double>(each());
  }

  // The codec alone, on the chunks of a file, side by side, from memory to memory.
  void codec(Json& row) const {
    const std::size_t chunks = static_cast<std::size_t>(std::clamp<std::int64_t>(
        kMemoryBytes / static_cast<std::int64_t>(chunk_bytes()), 1, source->samples() / chunk));
    const Shape shape = with_samples(chunk, array().sample);
    const std::size_t most = layout(spec, array().dtype, shape).max_bytes;
    Bytes in(chunks * chunk_bytes()), packed(chunks * most), out(chunks * chunk_bytes());
    std::vector<std::size_t> sizes(chunks);
    source->read(0, 0, static_cast<std::int64_t>(chunks) * chunk, in.data());
    const auto over_chunks = [&](const auto& work) {
      parallel_for(static_cast<std::int64_t>(chunks), threads,
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) work(static_cast<std::size_t>(i));
                   });
    };
    const double pack_s = best_of(seconds, [&] {
      over_chunks([&](std::size_t i) {
        const ConstTensorView view(in.data() + i * chunk_bytes(), array().dtype, shape);
        sizes[i] = pack(spec, view, std::span(packed).subspan(i * most, most), {.threads = 1});
      });
    });
    const double unpack_s = best_of(seconds, [&] {
      over_chunks([&](std::size_t i) {
        const TensorView view(out.data() + i * chunk_bytes(), array().dtype, shape);
        unpack(spec, std::span(packed).subspan(i * most, sizes[i]), view, {.threads = 1});
      });
    });
    row["codec_pack_gbps"] = static_cast<double>(in.size()) / pack_s / 1e9;
    row["codec_unpack_gbps"] = static_cast<double>(in.size()) / unpack_s / 1e9;
  }

  // The inputs alone, chunk by chunk as the writer fetches them.
  void inputs(Json& row) const {
    const std::int64_t chunks = (source->samples() + chunk - 1) / chunk;
    const double read_s = best_of(seconds, [&] {
      parallel_for(chunks, threads, [&](std::int64_t begin, std::int64_t end) {
        Bytes room(chunk_bytes());
        for (std::int64_t i = begin; i < end; ++i) {
          source->read(0, i * chunk, std::min(chunk, source->samples() - i * chunk), room.data());
        }
      });
    });
    row["input_gbps"] = all_bytes() / read_s / 1e9;
  }

  void write_file(Json& row) const {
    const double pack_s = best_of(
        seconds,
        [&] {
          FileWriter writer(path,
                            {{.name = array().name,
                              .dtype = array().dtype,
                              .shape = array().sample,
                              .codec = spec}},
                            {.threads = threads, .sync = false});
          writer.write(source->samples(), [&](std::size_t number, std::int64_t first,
                                              std::int64_t samples, std::byte* room) {
            return source->fetch(number, first, samples, room);
          });
          writer.finish();
        },
        [&] { ::unlink(path.c_str()); });
    row["pack_gbps"] = all_bytes() / pack_s / 1e9;
    const std::size_t bytes = std::filesystem::file_size(path);
    row["file_bytes"] = bytes;
    // As many bytes, written plainly.
    const std::string plain = path + ".plain";
    const Bytes block(256 << 10);
    const double write_s = best_of(
        seconds,
        [&] {
          std::FILE* file = std::fopen(plain.c_str(), "wb");
          if (file == nullptr) throw std::runtime_error("cannot write " + plain);
          for (std::size_t at = 0; at < bytes; at += block.size()) {
            std::fwrite(block.data(), 1, std::min(block.size(), bytes - at), file);
          }
          std::fclose(file);
        },
        [&] { ::unlink(plain.c_str()); });
    ::unlink(plain.c_str());
    row["write_seconds"] = write_s;
  }

  void read_file(Json& row) const {
    const FileReader reader(path);
    const std::int64_t batch = std::clamp<std::int64_t>(
        kBatchBytes / static_cast<std::int64_t>(each()), 1, reader.samples());
    Bytes out(static_cast<std::size_t>(batch) * each());
    const double read_s = best_of(seconds, [&] {
      for (std::int64_t at = 0; at < reader.samples(); at += batch) {
        const std::int64_t count = std::min(batch, reader.samples() - at);
        reader.read(0, at, count,
                    TensorView(out.data(), array().dtype, with_samples(count, array().sample)),
                    threads);
      }
    });
    row["unpack_gbps"] = all_bytes() / read_s / 1e9;
    row["samples_per_chunk"] = reader.arrays()[0].samples_per_chunk;
    access(reader, row);
    check(reader);
  }

  // One sample at a time, anywhere; the second time round, so that the page cache has the file and
  // every chunk has been checked.
  void access(const FileReader& reader, Json& row) const {
    std::mt19937_64 random(5);
    std::uniform_int_distribution<std::int64_t> any(0, reader.samples() - 1);
    Bytes sample(each());
    std::vector<double> micros;
    for (int i = 0; i < kReads; ++i) {
      const std::int64_t number = any(random);
      micros.push_back(1e6 * seconds_of([&] {
                         reader.read_one(0, number,
                                         TensorView(sample.data(), array().dtype, array().sample));
                       }));
    }
    std::ranges::sort(micros);
    row["access_us"] = micros[micros.size() / 2];
    row["access_us_99"] = micros[micros.size() * 99 / 100];
  }

  // Samples here and there are what their chunk gives when it is packed alone.
  void check(const FileReader& reader) const {
    Bytes wanted, packed, seen(each());
    for (std::int64_t i = 0; i < 20; ++i) {
      const auto chunks = reader.chunks(0);
      const ChunkInfo& chunk = chunks[static_cast<std::size_t>(i) * (chunks.size() - 1) / 19];
      const Shape shape = with_samples(chunk.samples, array().sample);
      wanted.resize(static_cast<std::size_t>(chunk.samples) * each());
      source->read(0, chunk.first, chunk.samples, wanted.data());
      packed.resize(layout(spec, array().dtype, shape).max_bytes);
      packed.resize(pack(spec, ConstTensorView(wanted.data(), array().dtype, shape), packed));
      unpack(spec, packed, TensorView(wanted.data(), array().dtype, shape));
      const std::int64_t last = chunk.samples - 1;
      reader.read_one(0, chunk.first + last,
                      TensorView(seen.data(), array().dtype, array().sample));
      if (std::memcmp(seen.data(), wanted.data() + static_cast<std::size_t>(last) * each(),
                      each()) != 0) {
        throw std::runtime_error("sample " + std::to_string(chunk.first + last) + " is wrong");
      }
    }
  }
};

void run(int count, char** words) {
  if (count < 6) {
    throw std::runtime_error("usage: file_bench SPEC THREADS SECONDS FOLDER INPUT...");
  }
  const std::vector<std::filesystem::path> inputs(words + 5, words + count);
  std::unique_ptr<Source> source = open_source(inputs, {});
  const SourceArray& first = source->arrays()[0];
  std::vector<ArrayInfo> checked = {{.name = first.name,
                                     .dtype = first.dtype,
                                     .shape = first.sample,
                                     .codec = CodecSpec::parse(words[1])}};
  check_arrays(checked);
  const std::int64_t source_samples = source->samples();
  const Bench bench{.source = std::move(source),
                    .spec = checked[0].codec,
                    .threads = thread_count(std::atoi(words[2])),
                    .seconds = std::atof(words[3]),
                    .path = std::string(words[4]) + "/bench.tuck",
                    .chunk = std::min(checked[0].samples_per_chunk, source_samples)};
  Json row = {{"codec", bench.spec.print()},
              {"dtype", to_string(bench.array().dtype)},
              {"shape",
               std::vector<std::int64_t>(bench.array().sample.begin(), bench.array().sample.end())},
              {"samples", bench.source->samples()},
              {"bytes", bench.all_bytes()},
              {"threads", bench.threads}};
  bench.codec(row);
  bench.inputs(row);
  bench.write_file(row);
  bench.read_file(row);
  ::unlink(bench.path.c_str());
  std::cout << row.dump() << "\n";
}

}  // namespace
}  // namespace tuckfold

int main(int count, char** words) {
  try {
    tuckfold::run(count, words);
  } catch (const std::exception& error) {
    std::cerr << "file_bench: " << error.what() << "\n";
    return 1;
  }
}
