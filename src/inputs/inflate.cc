// Two calls around zlib. Its counters have 32 bits, so input and output are passed in pieces.
#include "inputs/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <new>
#include <vector>

#include "base/fail.h"

namespace tuckfold {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 30;

class Inflater {
 public:
  Inflater(std::span<const std::byte> in, Deflated kind) : in_(in), kind_(kind) {
    const int window = kind == Deflated::Gzip ? MAX_WBITS + 16 : -MAX_WBITS;
    if (::inflateInit2(&stream_, window) != Z_OK) throw std::bad_alloc();
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { ::inflateEnd(&stream_); }

  // Fills as much of `out` as there is; fewer bytes where the input ends or is wrong.
  std::size_t fill(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size() && !ended_ && !broken_) done += step(out.subspan(done));
    return done;
  }

  // Whether the input ended as it should, with nothing left to come out.
  bool ended_well() {
    std::byte more;
    return fill({&more, 1}) == 0 && ended_ && !broken_;
  }

 private:
  std::size_t step(std::span<std::byte> out) {
    const std::size_t in_piece = std::min(in_.size(), kPiece);
    const std::size_t out_piece = std::min(out.size(), kPiece);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(in_.data()));
    stream_.avail_in = static_cast<uInt>(in_piece);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out_piece);
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    const std::size_t eaten = in_piece - stream_.avail_in;
    const std::size_t made = out_piece - stream_.avail_out;
    in_ = in_.subspan(eaten);
    if (result == Z_STREAM_END) {
      // A gzip file may hold several streams, one after the other.
      ended_ = in_.empty() || kind_ == Deflated::Raw;
      if (!ended_) broken_ = ::inflateReset(&stream_) != Z_OK;
    } else {
      broken_ = result != Z_OK || (eaten == 0 && made == 0);
    }
    return made;
  }

  z_stream stream_{};
  std::span<const std::byte> in_;
  Deflated kind_;
  bool ended_ = false, broken_ = false;
};

}  // namespace

std::size_t most_inflated(std::size_t deflated) {
  // 258 bytes by a length and a distance of one bit each, and a block that has just begun.
  return deflated > SIZE_MAX / 2048 ? SIZE_MAX : deflated * 1032 + 1032;
}

std::shared_ptr<const Bytes> inflate_all(std::span<const std::byte> in, Deflated kind,
                                         std::size_t size, std::string_view verb,
                                         std::string_view path) {
  if (size > most_inflated(in.size())) {
    fail(Errc::CorruptData, "[{}] '{}': {} bytes cannot inflate to {}", verb, path, in.size(),
         size);
  }
  Inflater inflater(in, kind);
  const std::shared_ptr<Bytes> out = Bytes::scratch(size, verb);
  const std::size_t got = inflater.fill({out->scratch_data(), size});
  if (got != size || !inflater.ended_well()) {
    fail(Errc::CorruptData,
         "[{}] '{}' is truncated or damaged: {} of {} bytes inflate{}; copy it again", verb, path,
         got, size, got == size ? ", and then it does not end" : "");
  }
  return out;
}

std::shared_ptr<const Bytes> inflate_gzip(std::span<const std::byte> in, std::string_view verb,
                                          std::string_view path) {
  Inflater counter(in, Deflated::Gzip);
  std::vector<std::byte> room(std::size_t{1} << 18);
  std::size_t size = 0;
  for (std::size_t got = room.size(); got == room.size(); size += got) got = counter.fill(room);
  if (!counter.ended_well()) {
    fail(Errc::CorruptData,
         "[{}] '{}' is a gzip file that is truncated or damaged after {} inflated bytes; copy it "
         "again",
         verb, path, size);
  }
  return inflate_all(in, Deflated::Gzip, size, verb, path);
}

std::size_t inflate_front(std::span<const std::byte> in, Deflated kind, std::span<std::byte> out) {
  return Inflater(in, kind).fill(out);
}

std::uint32_t crc32_of(std::span<const std::byte> bytes, std::uint32_t before) {
  return static_cast<std::uint32_t>(
      ::crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace tuckfold
