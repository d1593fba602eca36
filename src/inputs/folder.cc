// A folder's files as inputs. Files of two formats, or of training and of test, are refused by name
// until the caller chooses.
#include "inputs/folder.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/fail.h"
#include "inputs/image.h"
#include "inputs/pickle.h"

namespace tuckfold {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSeparators = "-_. ";  // between the words of a name

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& letter : out)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return out;
}

// Whatever the system says while it lists a folder is an Error, as all else is.
template <class Body>
void listing(const fs::path& folder, Body&& body) {
  try {
    body();
  } catch (const fs::filesystem_error& error) {
    const fs::path& where = error.path1().empty() ? folder : error.path1();
    fail(Errc::Io, "[source] cannot list '{}': {}", where.string(), error.code().message());
  }
}

// A link that leads nowhere, or in a circle, counts: whoever opens it says so, with its name.
bool is_file(const fs::directory_entry& entry) {
  std::error_code error;
  const fs::file_type type = entry.status(error).type();
  const bool broken = type == fs::file_type::not_found || type == fs::file_type::none;
  return type == fs::file_type::regular || (broken && entry.is_symlink(error));
}

// "'a', 'b' and 3 more"
std::string some_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

// Those names of a folder that belong to the split in the options, or to the only one.
std::vector<std::string> pick_split(const fs::path& folder, const std::vector<std::string>& names,
                                    const SourceOptions& options) {
  std::map<std::string_view, std::vector<std::string>> splits;
  for (const std::string& name : names) splits[split_of(name)].push_back(name);
  const bool has_names = splits.size() > (splits.contains("") ? 1u : 0u);
  if (!options.split.empty()) {
    const auto found = splits.find(options.split);
    if (found != splits.end() && !found->first.empty()) return found->second;
    std::vector<std::string_view> known;
    for (const auto& [split, files] : splits) {
      if (!split.empty()) known.push_back(split);
    }
    invalid("[source] folder '{}' has no split '{}'; {}", folder.string(), options.split,
            has_names ? fmt::format("it has {}", fmt::join(known, ", "))
                      : "its names are of no splits, so leave out --split");
  }
  splits.erase("");
  if (splits.size() < 2) return names;
  std::string found, remedy;
  for (const auto& [split, files] : splits) {
    found += fmt::format("{}{} ({})", found.empty() ? "" : " and ", split, some_of(files));
    remedy += fmt::format("{}--split {}", remedy.empty() ? "" : " or ", split);
  }
  invalid("[source] folder '{}' has samples of {}; choose with {}", folder.string(), found, remedy);
}

// Whether there are images below a folder, of whatever format.
bool has_images(const fs::path& folder) {
  const auto is_image = [](const std::string& path) {
    return is_image_name(path, OtherImages::Count);
  };
  bool found = std::ranges::any_of(entries_of(folder).files, is_image);
  for (const std::string& name : entries_of(folder).folders) {
    if (found) break;
    walk_files(folder / name, [&](const std::string& path) { return !(found = is_image(path)); });
  }
  return found;
}

class Expander {
 public:
  Expander(const SourceOptions& options, Expanded& out)
      : options_(options), is_raw_(is_raw(options)), out_(out) {}

  void add(const fs::path& path) {
    SourceInput input = open_input(path, is_raw_);
    folders_ += input.file == nullptr ? 1 : 0;
    if (input.file) {
      out_.inputs.push_back(std::move(input));
    } else if (wants_images() && has_images(path)) {
      add_images(path);
    } else if (options_.format == "images") {
      out_.inputs.push_back(std::move(input));  // its reader reports what is missing
    } else {
      add_files(path);
    }
  }

  void finish() const {
    if (!options_.split.empty() && folders_ == 0) {
      invalid("[source] a split is one of a folder's, and no folder was given; leave out --split");
    }
  }

 private:
  bool wants_images() const {
    return !is_raw_ && (options_.format.empty() || options_.format == "images");
  }

  // Folders called train and test are splits, and not classes.
  void add_images(const fs::path& folder) {
    const FolderEntries entries = entries_of(folder);
    if (options_.format.empty()) refuse_other_files(folder, entries.files);
    const bool has_splits =
        !entries.folders.empty() &&
        std::ranges::all_of(entries.folders, [](const std::string& name) {
          return !split_of(name).empty() && name.find_first_of(kSeparators) == name.npos;
        });
    if (!has_splits) {
      if (!options_.split.empty()) pick_split(folder, {}, options_);
      out_.inputs.push_back({.path = folder.string(), .file = nullptr});
      return;
    }
    for (const std::string& name : pick_split(folder, entries.folders, options_)) {
      out_.inputs.push_back({.path = (folder / name).string(), .file = nullptr});
    }
  }

  // Beside images, by their names alone: a folder may have a million files.
  void refuse_other_files(const fs::path& folder, const std::vector<std::string>& files) const {
    for (const std::string& name : files) {
      if (is_image_name(name)) continue;
      const SourceFormat* format = find_format({.path = name, .file = Bytes::of({})});
      if (format == nullptr) continue;
      invalid(
          "[source] folder '{}' has images and '{}' ({}); choose with --format images or "
          "--format {}",
          folder.string(), name, format->name, format->name);
    }
  }

  void add_files(const fs::path& folder) {
    struct Found {
      std::string name;
      const SourceFormat* format;
    };
    const FolderEntries entries = entries_of(folder);
    std::map<std::string, SourceInput> opened;
    std::vector<Found> found;
    for (const std::string& name : entries.files) {
      SourceInput input = open_input(folder / name, is_raw_);
      if (std::vector<std::string> classes = read_class_names(input); !classes.empty()) {
        out_.classes = std::move(classes);
        continue;
      }
      const SourceFormat* format = is_raw_ ? nullptr : find_format(input);
      if (!is_raw_ && format == nullptr) continue;
      if (!options_.format.empty() && !is_raw_ && format->name != options_.format) continue;
      found.push_back({name, format});
      opened.emplace(name, std::move(input));
    }
    if (found.empty()) refuse_empty(folder, entries);
    for (const Found& one : found) {
      if (one.format == found.front().format) continue;
      invalid(
          "[source] folder '{}' has files of several formats, '{}' ({}) and '{}' ({}); choose "
          "with --format, or name the files",
          folder.string(), found.front().name, found.front().format->name, one.name,
          one.format->name);
    }
    std::vector<std::string> names;
    for (const Found& one : found) names.push_back(one.name);
    const bool beside = found.front().format == &kNpySource;
    if (!beside || !options_.split.empty()) names = pick_split(folder, names, options_);
    out_.side_by_side = out_.side_by_side || beside;
    for (const std::string& name : names) out_.inputs.push_back(std::move(opened.at(name)));
  }

  [[noreturn]] void refuse_empty(const fs::path& folder, const FolderEntries& entries) const {
    invalid("[source] folder '{}' has no {} that can be read{}", folder.string(),
            options_.format.empty() ? "files" : fmt::format("files of {}", options_.format),
            entries.folders.empty()
                ? ""
                : fmt::format(" itself; name the files, or one of its folders, {}",
                              some_of(entries.folders)));
  }

  const SourceOptions& options_;
  const bool is_raw_;
  Expanded& out_;
  int folders_ = 0;
};

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Expanded open_inputs(std::span<const fs::path> paths, const SourceOptions& options) {
  Expanded out;
  Expander expander(options, out);
  for (const fs::path& path : paths) expander.add(path);
  expander.finish();
  return out;
}

FolderEntries entries_of(const fs::path& folder) {
  FolderEntries entries;
  listing(folder, [&] {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      std::string name = entry.path().filename().string();
      if (name.starts_with('.')) continue;
      if (is_file(entry)) {
        entries.files.push_back(std::move(name));
      } else if (entry.is_directory()) {
        entries.folders.push_back(std::move(name));
      }
    }
  });
  std::ranges::sort(entries.files);
  std::ranges::sort(entries.folders);
  return entries;
}

void walk_files(const fs::path& folder, const std::function<bool(const std::string&)>& take) {
  listing(folder, [&] {
    // Links to folders are not followed: they may lead in circles.
    for (fs::recursive_directory_iterator at(folder); at != fs::end(at); ++at) {
      if (at->path().filename().string().starts_with('.')) {
        at.disable_recursion_pending();  // editors keep copies in hidden folders
      } else if (is_file(*at) && !take(at->path().string())) {
        return;
      }
    }
  });
}

std::string_view split_of(std::string_view name) {
  const std::string small = lower(name);
  if (small.starts_with("data_batch")) return "train";  // CIFAR-10's
  const std::string word = small.substr(0, small.find_first_of(kSeparators));
  struct Word {
    std::string_view word, split;
  };
  constexpr std::array kWords = {
      Word{"train", "train"},           Word{"training", "train"},  Word{"test", "test"},
      Word{"testing", "test"},          Word{"t10k", "test"},       Word{"val", "validation"},
      Word{"validation", "validation"}, Word{"valid", "validation"}};
  const auto found = std::ranges::find(kWords, word, &Word::word);
  return found == kWords.end() ? std::string_view() : found->split;
}

std::vector<std::string> read_class_names(const SourceInput& file) {
  const std::string name = fs::path(file.path).filename().string();
  if (name == "batches.meta.txt" || name == "fine_label_names.txt") return lines_of(file.text());
  if (name != "batches.meta" && name != "meta") return {};
  if (!kCifarPickleSource.looks_like(file)) return {};
  const Pickle pickle(file.bytes(), file.path);
  std::vector<std::string> names;
  for (const char* key : {"label_names", "fine_label_names"}) {
    const Pickle::Node* list = pickle.find(pickle.root(), key);
    if (list == nullptr || list->kind != Pickle::Kind::List) continue;
    for (const Pickle::Value item : list->items) names.emplace_back(Pickle::text(pickle[item]));
  }
  return names;
}

}  // namespace tuckfold
