// Images, each a file: named one by one, or in folders, where folders inside are classes. They are
// opened when they are read, since a system maps only so many files at once.
#include <algorithm>
#include <filesystem>

#include "base/fail.h"
#include "inputs/formats.h"
#include "inputs/image.h"

namespace tuckfold {
namespace {

namespace fs = std::filesystem;

struct Picture {
  std::string path;
  std::shared_ptr<const Bytes> file;  // null: opened when needed
  std::int64_t label = -1;            // -1: of no class

  std::shared_ptr<const Bytes> bytes() const { return file ? file : Bytes::map(path, "images"); }
};

class ImagesSource final : public Source {
 public:
  ImagesSource(std::vector<SourceArray> arrays, const ImageInfo& info,
               std::vector<Picture> pictures)
      : Source(std::move(arrays), static_cast<std::int64_t>(pictures.size())),
        info_(info),
        pictures_(std::move(pictures)) {}

 private:
  void read_samples(std::size_t array, std::int64_t first, std::int64_t count,
                    std::byte* out) const override {
    const std::size_t size = arrays()[array].sample_bytes();
    for (; count > 0; --count, ++first, out += size) {
      const Picture& picture = pictures_[static_cast<std::size_t>(first)];
      if (array == 0) {
        read_image(picture.bytes()->span(), picture.path, info_, out);
      } else {
        std::copy_n(reinterpret_cast<const std::byte*>(&picture.label), size, out);
      }
    }
  }

  ImageInfo info_;
  std::vector<Picture> pictures_;
};

bool looks_like(const SourceInput& input) {
  return !input.file || image_format(input.bytes()) != nullptr;
}

// Whatever the system says while it lists a folder is an Error, as all else is.
template <class Body>
void listing(const fs::path& folder, Body&& body) {
  try {
    body();
  } catch (const fs::filesystem_error& error) {
    fail(Errc::Io, "[images] cannot list '{}': {}", folder.string(), error.code().message());
  }
}

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// The images below a folder, sorted by path.
void gather(const fs::path& folder, std::int64_t label, std::vector<Picture>& pictures) {
  const auto begin = static_cast<std::ptrdiff_t>(pictures.size());
  listing(folder, [&] {
    for (fs::recursive_directory_iterator at(folder); at != fs::end(at); ++at) {
      const std::string path = at->path().string();
      if (is_hidden(at->path())) {
        at.disable_recursion_pending();  // editors keep copies in hidden folders
      } else if (at->is_regular_file() && is_image_name(path)) {
        pictures.push_back({.path = path, .file = nullptr, .label = label});
      }
    }
  });
  std::ranges::sort(pictures.begin() + begin, pictures.end(), {}, &Picture::path);
}

std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  listing(folder, [&] {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (entry.is_directory() && !is_hidden(entry.path())) {
        names.push_back(entry.path().filename().string());
      }
    }
  });
  std::ranges::sort(names);
  return names;
}

// Every image of the inputs. Classes are the same in all folders, or there are none.
std::vector<Picture> gather(std::span<const SourceInput> inputs) {
  std::vector<Picture> pictures;
  std::vector<std::string> classes;
  for (const SourceInput& input : inputs) {
    const std::vector<std::string> found =
        input.file ? std::vector<std::string>() : folders_in(input.path);
    if (&input == &inputs.front()) classes = found;
    if (found != classes) {
      invalid("[images] '{}' and '{}' must have the same classes, got {} and {} folders",
              inputs.front().path, input.path, classes.size(), found.size());
    }
    const std::size_t before = pictures.size();
    if (input.file) {
      pictures.push_back({.path = input.path, .file = input.file});
    } else if (classes.empty()) {
      gather(input.path, -1, pictures);
    } else {
      for (std::size_t i = 0; i < classes.size(); ++i) {
        gather(fs::path(input.path) / classes[i], static_cast<std::int64_t>(i), pictures);
      }
    }
    if (pictures.size() == before) {
      invalid("[images] folder '{}' has no PNG, JPEG or TIFF images", input.path);
    }
  }
  return pictures;
}

std::unique_ptr<Source> open(std::span<const SourceInput> inputs, const SourceOptions&) {
  std::vector<Picture> pictures = gather(inputs);
  const Picture& first = pictures.front();
  const ImageInfo info = look_at_image(first.bytes()->span(), first.path);
  for (const Picture& picture : pictures) {
    const ImageInfo other = look_at_image(picture.bytes()->span(), picture.path);
    if (other != info) {
      invalid(
          "[images] all must have one size and type, but '{}' is {} {} and '{}' is {} {}; "
          "resize them",
          first.path, to_string(info.shape()), to_string(info.dtype), picture.path,
          to_string(other.shape()), to_string(other.dtype));
    }
  }
  std::vector<SourceArray> arrays = {{"image", info.dtype, info.shape()}};
  if (first.label >= 0) arrays.push_back({"label", DType::I64, {}});
  return std::make_unique<ImagesSource>(std::move(arrays), info, std::move(pictures));
}

}  // namespace

const SourceFormat kImagesSource = {
    .name = "images",
    .summary = "PNG, JPEG or TIFF files or folders of them; folders inside are classes",
    .extensions = ".png .jpg .jpeg .tif .tiff",
    .looks_like = looks_like,
    .open = open};

}  // namespace tuckfold
