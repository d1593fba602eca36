// Any bytes are refused as CorruptData or Unsupported, or are a frame or a file whose samples can
// be read, verified and repaired. The first byte says whether checksums are put right first, so
// that the code after these checks is reached, too.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "container/format.h"
#include "container/frame.h"
#include "container/shards.h"
#include "tuckfold/error.h"

namespace {

using namespace tuckfold;

constexpr std::uint64_t kMostBytes = 16 << 20;  // of samples that a run asks for

void zero_then_crc(std::span<std::byte> part, std::size_t at) {
  store(part.data() + at, std::uint32_t{0});
  store(part.data() + at, crc32c(part));
}

// Frames, records and trailers in the file get the checksums that their bytes have.
void put_checksums_right(std::vector<std::byte>& file) {
  const std::span<std::byte> all(file);
  for (std::size_t at = 0; at + 64 <= file.size(); at += 16) {
    const std::span<std::byte> rest = all.subspan(at);
    if (begins_with(rest, "TkFr")) {
      const auto rank = load<std::uint8_t>(rest.data() + 6);
      const auto spec = load<std::uint32_t>(rest.data() + 8);
      const std::uint64_t header = round_up(32 + 8 * std::uint64_t{rank} + spec, 16);
      const auto packed = load<std::uint64_t>(rest.data() + 16);
      if (header > rest.size() || packed > rest.size() - header) continue;
      store(rest.data() + 24, crc32c(rest.subspan(header, packed)));
      zero_then_crc(rest.first(header), 12);
    }
  }
  for (std::size_t at = 0; at + 64 <= file.size(); at += 64) {
    const std::span<std::byte> rest = all.subspan(at);
    const auto bytes = load<std::uint64_t>(rest.data() + 8);
    if (begins_with(rest, "TkRc") && bytes <= rest.size() - kRecordHeadBytes) {
      const bool chunk = load<std::uint32_t>(rest.data() + 4) == 2;
      const std::size_t covered = chunk ? std::min<std::size_t>(bytes, kChunkHeadBytes) : bytes;
      store(rest.data() + 20, crc32c(rest.subspan(kRecordHeadBytes, covered)));
      zero_then_crc(rest.first(kRecordHeadBytes), 16);
    }
    if (begins_with(rest.subspan(56), "TuckEnd.")) zero_then_crc(rest.first(64), 52);
  }
}

// Runs a step that may refuse its input, in one of two ways.
template <class Step>
void may_refuse(Step&& step) {
  try {
    step();
  } catch (const Error& error) {
    if (error.code() != Errc::CorruptData && error.code() != Errc::Unsupported) std::abort();
  }
}

void try_frame(ByteSpan bytes) {
  const FrameHeader header = read_frame_header(bytes);
  const auto elems = static_cast<std::uint64_t>(header.shape.elems());
  if (elems > kMostBytes / size_bytes(header.dtype)) return;
  std::vector<double> room(elems * size_bytes(header.dtype) / 8 + 1);
  unpack_frame(bytes, TensorView(room.data(), header.dtype, header.shape), {.threads = 1});
}

void try_file(const std::string& path) {
  const FileReader reader(path);
  for (std::size_t i = 0; i < reader.arrays().size(); ++i) {
    const ArrayInfo& array = reader.arrays()[i];
    const auto each = static_cast<std::uint64_t>(array.shape.elems()) * size_bytes(array.dtype);
    for (const ChunkInfo& chunk : reader.chunks(i)) {
      if (static_cast<std::uint64_t>(chunk.samples) > kMostBytes / each) continue;
      std::vector<double> room(static_cast<std::uint64_t>(chunk.samples) * each / 8 + 1);
      const Shape all = with_samples(chunk.samples, array.shape);
      may_refuse([&] {
        reader.read(i, chunk.first, chunk.samples, TensorView(room.data(), array.dtype, all), 1);
      });
      may_refuse([&] {
        reader.read_one(i, chunk.first, TensorView(room.data(), array.dtype, array.shape));
      });
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto* begin = reinterpret_cast<const std::byte*>(data) + 1;
  std::vector<std::byte> bytes(begin, begin + size - 1);
  if (data[0] % 2 == 1) put_checksums_right(bytes);
  may_refuse([&] { try_frame(bytes); });
  // Not opened: it may name files of this machine.
  if (begins_with(bytes, "{")) return may_refuse([&] { read_manifest(bytes, "manifest.json"); }), 0;

  const int file = ::memfd_create("fuzz", 0);
  if (::write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  may_refuse([&] { try_file(path); });
  may_refuse([&] { verify(path, 1); });
  const bool in_memory = ::access("/dev/shm", W_OK) == 0;
  const std::filesystem::path folder =
      in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
  const std::string repaired = folder / ("tuckfold_fuzz_" + std::to_string(::getpid()));
  may_refuse([&] {
    repair(path, repaired);
    if (!verify(repaired, 1).broken.empty()) std::abort();
  });
  ::unlink(repaired.c_str());
  ::unlink((repaired + ".partial").c_str());
  ::close(file);
  return 0;
}
