// Any text is refused as InvalidArgument, or prints to a text that reads back as the same codec.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "tuckfold/codec.h"
#include "tuckfold/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using tuckfold::CodecSpec;
  std::optional<CodecSpec> spec;
  try {
    spec = CodecSpec::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const tuckfold::Error& error) {
    if (error.code() != tuckfold::Errc::InvalidArgument) std::abort();
    return 0;
  }
  const std::string text = spec->print();
  const CodecSpec again = CodecSpec::parse(text);
  if (again != *spec || again.print() != text) std::abort();
  return 0;
}
