// Any text is refused as InvalidArgument, or is a device whose answers are one line each.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tuckfold/devices.h"
#include "tuckfold/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tuckfold;
  DeviceInfo device;
  try {
    device = parse_device({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  } catch (const Error& error) {
    if (error.code() != Errc::InvalidArgument) std::abort();
    return 0;
  }
  const CodecSpec spec = CodecSpec::parse("dct_chop(keep=4)");
  const Shape shape{4, 16, 16};
  const Fit fit = fits(device, spec, DType::F32, shape, Direction::Both);
  if (fit.why.empty()) std::abort();
  try {
    const HostCallTime time = host_call_time(device, spec, DType::F32, shape, Direction::Pack);
    if (!(time.low <= time.seconds && time.seconds <= time.high)) std::abort();
  } catch (const Error& error) {
    if (error.code() != Errc::Unsupported) std::abort();
  }
  return 0;
}
