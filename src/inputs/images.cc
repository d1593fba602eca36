// Images, each a file or a page of one: named one by one, or in folders, where folders inside are classes. They are
// opened when they are read, since a system maps only so many files at once.
#include <algorithm>
#include <filesystem>

#include "base/fail.h"
#include "inputs/folder.h"
#include "inputs/formats.h"
#include "inputs/image.h"

namespace tuckfold {
namespace {

namespace fs = std::filesystem;

struct Picture {
  std::string path;
  std::shared_ptr<const Bytes> file;  // null: opened when needed
  std::int64_t label = -1;            // -1: of no class
  std::uint64_t page = kOnlyPage;
  std::int64_t number = -1;  // of the page, from 0; -1: the only one

  std::shared_ptr<const Bytes> bytes() const { return file ? file : Bytes::map(path, "images"); }
  std::string name(const std::string& of) const {
    return number < 0 ? of : fmt::format("{}, page {}", of, number);
  }
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
        read_image(picture.bytes()->span(), picture.name(picture.path), info_, out, picture.page);
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

// The images below a folder, sorted by path.
void gather(const fs::path& folder, std::int64_t label, std::vector<Picture>& pictures) {
  const auto begin = static_cast<std::ptrdiff_t>(pictures.size());
  walk_files(folder, [&](const std::string& path) {
    if (is_image_name(path)) pictures.push_back({.path = path, .file = nullptr, .label = label});
    return true;
  });
  std::ranges::sort(pictures.begin() + begin, pictures.end(), {}, &Picture::path);
}

struct Gathered {
  std::vector<Picture> pictures;
  std::vector<std::string> classes;  // folders that hold images, and those beside them
};

// The images of one folder: in folders, which are classes, or loose. Both together would drop one half,
// or call it by no class.
Gathered gather(const fs::path& folder) {
  const FolderEntries entries = entries_of(folder);
  Gathered all{.pictures = {}, .classes = entries.folders};
  for (std::size_t i = 0; i < entries.folders.size(); ++i) {
    gather(folder / entries.folders[i], static_cast<std::int64_t>(i), all.pictures);
  }
  std::vector<Picture> loose;
  for (const std::string& name : entries.files) {
    if (is_image_name(name)) loose.push_back({.path = (folder / name).string(), .file = nullptr});
  }
  if (!loose.empty() && !all.pictures.empty()) {
    invalid(
        "[images] folder '{}' has {} images of no class, such as '{}', beside those in folders, "
        "such "
        "as '{}'; move them to a folder of their class, or name the folders to pack",
        folder.string(), loose.size(), loose.front().path, all.pictures.front().path);
  }
  if (all.pictures.empty()) return {.pictures = std::move(loose), .classes = {}};
  return all;
}

// Every image of the inputs. Classes are the same in all folders, or there are none.
Gathered gather(std::span<const SourceInput> inputs, std::vector<std::string>& names) {
  Gathered all;
  for (const SourceInput& input : inputs) {
    Gathered found;
    if (input.file) {
      found.pictures.push_back({.path = input.path, .file = input.file});
    } else {
      found = gather(input.path);
    }
    if (&input == &inputs.front()) all.classes = found.classes;
    if (found.classes != all.classes) {
      invalid("[images] '{}' and '{}' must have the same classes, got {} and {} folders",
              inputs.front().path, input.path, all.classes.size(), found.classes.size());
    }
    if (found.pictures.empty()) {
      invalid("[images] folder '{}' has no PNG, JPEG or TIFF images", input.path);
    }
    const fs::path base = input.file ? fs::path(input.path).parent_path() : fs::path(input.path);
    for (const Picture& file : found.pictures) {
      std::string name = fs::path(file.path).lexically_relative(base).string();
      if (name.empty()) name = file.path;
      const std::vector<std::uint64_t> pages = pages_of_image(file.bytes()->span(), file.path);
      for (std::size_t i = 0; i < pages.size(); ++i) {
        Picture page = file;
        page.page = pages[i];
        if (pages.size() > 1) page.number = static_cast<std::int64_t>(i);
        names.push_back(page.name(name));
        all.pictures.push_back(std::move(page));
      }
    }
  }
  return all;
}

std::unique_ptr<Source> open(std::span<const SourceInput> inputs, const SourceOptions&) {
  SourceAbout about;
  auto [pictures, classes] = gather(inputs, about.files);
  about.classes = std::move(classes);
  const Picture& first = pictures.front();
  const auto look = [](const Picture& picture) {
    return look_at_image(picture.bytes()->span(), picture.name(picture.path), picture.page);
  };
  const ImageInfo info = look(first);
  for (const Picture& picture : pictures) {
    const ImageInfo other = look(picture);
    if (other != info) {
      invalid(
          "[images] all must have one size and type, but '{}' is {} {} and '{}' is {} {}; "
          "resize them",
          first.name(first.path), to_string(info.shape()), to_string(info.dtype),
          picture.name(picture.path), to_string(other.shape()), to_string(other.dtype));
    }
  }
  std::vector<SourceArray> arrays = {{"image", info.dtype, info.shape()}};
  if (first.label >= 0) arrays.push_back({"label", DType::I64, {}});
  auto source = std::make_unique<ImagesSource>(std::move(arrays), info, std::move(pictures));
  source->set_about(std::move(about));
  return source;
}

}  // namespace

const SourceFormat kImagesSource = {
    .name = "images",
    .summary = "PNG, JPEG or TIFF files or folders of them; folders inside are classes",
    .extensions = ".png .jpg .jpeg .tif .tiff",
    .looks_like = looks_like,
    .open = open};

}  // namespace tuckfold
