#include "cli/verbs/portable_options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>

#include "base/fail.h"
#include "cli/verbs/verbs.h"

namespace tuckfold::cli {

namespace fs = std::filesystem;

Shape parse_shape(const char* verb, const std::string& text) {
  if (text.empty()) {
    invalid("[{}] give the shape of the tensor, such as --shape 100,3,256,256", verb);
  }
  Shape shape;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find_first_of("x,", at), text.size());
    std::int64_t length = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, length);
    if (error != std::errc{} || stop != text.data() + end || length < 1 ||
        shape.rank() == Shape::kMaxRank) {
      invalid("[{}] --shape must be lengths of 1 or more, as in 100,3,256,256, got '{}'", verb,
              text);
    }
    shape.push_back(length);
    at = end + 1;
  }
  return shape;
}

DType parse_portable_dtype(const char* verb, const std::string& text) {
  constexpr std::string_view kTypes[] = {"f32", "f16", "bf16"};
  return parse_dtype(known_word(verb, "dtype", text, kTypes));
}

namespace {

// A folder of the user's own is asked first.
std::vector<fs::path> device_folders(const char* verb) {
  std::vector<fs::path> folders;
  if (const char* own = std::getenv("TUCKFOLD_DEVICES"); own != nullptr && *own != '\0') {
    std::error_code missing;
    if (!fs::is_directory(own, missing)) {
      fail(Errc::Io, "[{}] TUCKFOLD_DEVICES must name a folder with device files, got '{}'", verb,
           own);
    }
    folders.emplace_back(own);
  }
  std::error_code unreadable;
  const fs::path self = fs::read_symlink("/proc/self/exe", unreadable).parent_path();
  for (const char* share : {"share", "../share"}) {  // of a build, and of an installation
    folders.push_back(self / share / "tuckfold" / "devices");
  }
  return folders;
}

}  // namespace

void PortableOptions::add_to(Command& verb) {
  verb.add_option("--shape", shape, "Lengths of the tensor's axes, batch first")
      .type_name("100,3,256,256");
  verb.add_option("--dtype", dtype, "Type of the tensor, default f32").type_name("f32|f16|bf16");
  verb.add_option("--only", only, "One direction; default: both").type_name("pack|unpack");
}

std::string known_word(const char* verb, std::string_view kind, const std::string& word,
                       std::span<const std::string_view> words) {
  if (std::find(words.begin(), words.end(), word) != words.end()) return word;
  invalid("[{}] {}", verb, unknown_text(kind, word, words));
}

PortableCodec::PortableCodec(const char* verb, const PortableOptions& options) {
  if (options.spec.empty()) {
    invalid("[{}] name a codec, such as \"dct_chop(keep=4)\"", verb);
  }
  constexpr std::string_view kDirections[] = {"pack", "unpack"};
  shape = parse_shape(verb, options.shape);
  spec = CodecSpec::parse(options.spec);
  dtype = parse_portable_dtype(verb, options.dtype);
  direction = Direction::Both;
  if (!options.only.empty()) {
    direction = known_word(verb, "direction", options.only, kDirections) == "pack"
                    ? Direction::Pack
                    : Direction::Unpack;
  }
}

std::string PortableCodec::text() const {
  return fmt::format("{} of {} {}", spec.print(), to_string(dtype), to_string(shape));
}

std::string refusal_text(const Fit& fit) {
  return fit.why + "; " +
         (fit.remedy.empty()
              ? "no other order, coef, shape, serialize, padding, dtype, direction or batch helps"
              : fit.remedy);
}

std::string device_text(const DeviceInfo& device) {
  const char* own = std::getenv("TUCKFOLD_DEVICES");
  const bool is_own =
      own != nullptr && *own != '\0' &&
      fs::path(device.file).parent_path() == (fs::path(own) / "x").lexically_normal().parent_path();
  return is_own ? fmt::format("{} ({})", device.name, device.file) : device.name;
}

std::vector<std::string> device_names(const char* verb) {
  std::set<std::string> names;
  for (const fs::path& folder : device_folders(verb)) {
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(folder, unreadable)) {
      if (entry.path().extension() == ".json") names.insert(entry.path().stem());
    }
  }
  return {names.begin(), names.end()};
}

DeviceInfo find_device(const char* verb, const std::string& name) {
  if (name.ends_with(".json") || name.find('/') != name.npos) return read_device(name);
  for (const fs::path& folder : device_folders(verb)) {
    const fs::path path = (folder / (name + ".json")).lexically_normal();
    std::error_code unreadable;
    if (fs::exists(path, unreadable)) return read_device(path.string());
  }
  const std::vector<std::string> names = device_names(verb);
  if (names.empty()) {
    fail(Errc::Io,
         "[{}] no device files were found in share/tuckfold/devices beside the tool's folder; set "
         "TUCKFOLD_DEVICES to theirs",
         verb);
  }
  std::vector<std::string_view> known(names.begin(), names.end()), begun;
  std::copy_if(known.begin(), known.end(), std::back_inserter(begun),
               [&](std::string_view one) { return one.starts_with(name); });
  if (!name.empty() && !begun.empty()) {
    invalid("[{}] there is no device '{}', but {}; name one", verb, name, fmt::join(begun, ", "));
  }
  invalid("[{}] {}", verb, unknown_text("device", name, known));
}

}  // namespace tuckfold::cli
