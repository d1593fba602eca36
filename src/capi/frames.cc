// Frames in C: the container's, around bytes that a plan has packed.
#include <algorithm>
#include <span>

#include "capi/handles.h"
#include "container/frame.h"

using namespace tuckfold;        // NOLINT(google-build-using-namespace)
using namespace tuckfold::capi;  // NOLINT(google-build-using-namespace)

size_t tuckfold_frame_bytes(const tuckfold_plan* plan, size_t packed_bytes) {
  if (plan == nullptr) return 0;
  return frame_header_bytes(plan->plan.spec(), plan->plan.shape()) + packed_bytes;
}

tuckfold_status tuckfold_write_frame(const tuckfold_plan* plan, const void* packed,
                                     size_t packed_bytes, void* out, size_t out_bytes) {
  return guarded([&] {
    const Plan& made = given("frame", "the plan", plan).plan;
    given("frame", "the output", static_cast<std::byte*>(out));
    if (packed_bytes > 0) given("frame", "the packed bytes", static_cast<const char*>(packed));
    const std::size_t needed = tuckfold_frame_bytes(plan, packed_bytes);
    if (out_bytes < needed) {
      invalid("[frame] the output needs {} bytes, got {}; see tuckfold_frame_bytes()", needed,
              out_bytes);
    }
    check_claim(made.spec(), made.dtype(), made.shape(), needed);
    write_packed_frame(made.spec(), made.dtype(), made.shape(),
                       {static_cast<const std::byte*>(packed), packed_bytes},
                       {static_cast<std::byte*>(out), out_bytes});
  });
}

tuckfold_status tuckfold_read_frame(const void* bytes, size_t count, tuckfold_frame* frame) {
  return guarded([&] {
    tuckfold_frame& to = given("frame", "the place for the frame", frame);
    if (count > 0) given("frame", "the bytes", static_cast<const char*>(bytes));
    const RawFrame raw = read_raw_frame({static_cast<const std::byte*>(bytes), count});
    if (!raw.packed_is_whole()) {
      fail(Errc::CorruptData, "[frame] the checksum of the packed bytes is wrong");
    }
    static_cast<void>(checked_spec(raw));
    to = {.codec = raw.spec.data(),
          .codec_bytes = raw.spec.size(),
          .packed = raw.packed.data(),
          .packed_bytes = raw.packed.size(),
          .frame_bytes = raw.header_bytes + raw.packed.size(),
          .dtype = static_cast<int32_t>(raw.dtype),
          .rank = static_cast<int32_t>(raw.shape.rank()),
          .shape = {}};
    std::copy(raw.shape.begin(), raw.shape.end(), to.shape);
  });
}
