// Walks over several sources as if they were one.
#include "inputs/join.h"

#include <algorithm>
#include <iterator>

#include "base/fail.h"

namespace tuckfold {
namespace {

std::string describe(std::span<const SourceArray> arrays) {
  std::string text;
  for (const SourceArray& array : arrays) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", array.name, to_string(array.dtype),
                        to_string(array.sample));
  }
  return text;
}

// Fill values of one file are added to those of another.
bool can_follow(const SourceArray& a, const SourceArray& b) {
  return a.name == b.name && a.dtype == b.dtype && a.sample == b.sample;
}

class Concatenated final : public Source {
 public:
  Concatenated(std::vector<NamedSource> parts, std::vector<SourceArray> arrays,
               std::vector<std::int64_t> ends)
      : Source(std::move(arrays), ends.back()), parts_(std::move(parts)), ends_(std::move(ends)) {}

  void drop_pages() const noexcept override {
    for (const NamedSource& part : parts_) part.source->drop_pages();
  }

 private:
  void read_samples(std::size_t array, std::int64_t first, std::int64_t count,
                    std::byte* out) const override {
    const std::size_t bytes = arrays()[array].sample_bytes();
    for (std::size_t part = part_of(first); count > 0; ++part) {
      const std::int64_t now = std::min(count, ends_[part] - first);
      parts_[part].source->read(array, first - begin_of(part), now, out);
      out += static_cast<std::size_t>(now) * bytes;
      first += now;
      count -= now;
    }
  }

  const std::byte* find_samples(std::size_t array, std::int64_t first,
                                std::int64_t count) const override {
    const std::size_t part = part_of(first);
    if (count > ends_[part] - first) return nullptr;
    return find(*parts_[part].source, array, first - begin_of(part), count);
  }

  std::size_t part_of(std::int64_t sample) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), sample) -
                                    ends_.begin());
  }
  std::int64_t begin_of(std::size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }

  std::vector<NamedSource> parts_;
  std::vector<std::int64_t> ends_;  // of each part, in samples
};

// Selects arrays of other sources by number, for sources side by side and for arrays picked by
// name.
class PickedArrays final : public Source {
 public:
  struct From {
    std::size_t part, array;
  };
  PickedArrays(std::vector<NamedSource> parts, std::vector<SourceArray> arrays,
               std::vector<From> from)
      : Source(std::move(arrays), parts.front().source->samples()),
        parts_(std::move(parts)),
        from_(std::move(from)) {}

  void drop_pages() const noexcept override {
    for (const NamedSource& part : parts_) part.source->drop_pages();
  }

 private:
  void read_samples(std::size_t array, std::int64_t first, std::int64_t count,
                    std::byte* out) const override {
    parts_[from_[array].part].source->read(from_[array].array, first, count, out);
  }
  const std::byte* find_samples(std::size_t array, std::int64_t first,
                                std::int64_t count) const override {
    return find(*parts_[from_[array].part].source, from_[array].array, first, count);
  }

  std::vector<NamedSource> parts_;
  std::vector<From> from_;
};

// What the first says, with the names of all samples.
SourceAbout about_all(const std::vector<NamedSource>& parts) {
  SourceAbout about = parts.front().source->about();
  about.files.clear();
  for (const auto& [path, source] : parts) {
    const std::vector<std::string>& files = source->about().files;
    if (std::ssize(files) != source->samples()) return about;
    about.files.insert(about.files.end(), files.begin(), files.end());
  }
  return about;
}

// What any says, the first before others.
SourceAbout about_any(const std::vector<NamedSource>& parts) {
  SourceAbout about;
  for (const auto& [path, source] : parts) {
    const SourceAbout& more = source->about();
    if (about.classes.empty()) about.classes = more.classes;
    if (about.files.empty()) about.files = more.files;
    if (about.attributes.values.empty()) about.attributes = more.attributes;
    about.array_attributes.insert(more.array_attributes.begin(), more.array_attributes.end());
    about.attributes_left_out += more.attributes_left_out;
  }
  return about;
}

std::unique_ptr<Source> picked(std::vector<NamedSource> parts, std::vector<SourceArray> arrays,
                               std::vector<PickedArrays::From> from) {
  SourceAbout about = about_any(parts);
  auto source =
      std::make_unique<PickedArrays>(std::move(parts), std::move(arrays), std::move(from));
  source->set_about(std::move(about));
  return source;
}

}  // namespace

std::unique_ptr<Source> join_samples(std::vector<NamedSource> parts) {
  if (parts.size() == 1) return std::move(parts.front().source);
  const auto& [first_path, first] = parts.front();
  std::vector<std::int64_t> ends;
  for (const auto& [path, source] : parts) {
    if (!std::ranges::equal(source->arrays(), first->arrays(), can_follow)) {
      invalid(
          "[source] files of one dataset must hold the same arrays, but '{}' holds {} and '{}' "
          "holds {}; pack them apart, or side by side if each is an array of its own",
          first_path, describe(first->arrays()), path, describe(source->arrays()));
    }
    std::int64_t end = 0;
    if (__builtin_add_overflow(ends.empty() ? 0 : ends.back(), source->samples(), &end)) {
      invalid("[source] there are more samples than a number holds, from '{}' on", path);
    }
    ends.push_back(end);
  }
  for (const auto& [path, source] : parts) {
    for (std::size_t a = 0; a < source->arrays().size(); ++a) {
      for (const FillValue& value : source->arrays()[a].fill) first->add_fill(a, value);
    }
  }
  std::vector<SourceArray> arrays(first->arrays().begin(), first->arrays().end());
  SourceAbout about = about_all(parts);
  auto joined =
      std::make_unique<Concatenated>(std::move(parts), std::move(arrays), std::move(ends));
  joined->set_about(std::move(about));
  return joined;
}

std::unique_ptr<Source> join_arrays(std::vector<NamedSource> parts) {
  if (parts.size() == 1) return std::move(parts.front().source);
  const auto& [first_path, first] = parts.front();
  std::vector<SourceArray> arrays;
  std::vector<PickedArrays::From> from;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const auto& [path, source] = parts[part];
    if (source->samples() != first->samples()) {
      invalid(
          "[source] arrays side by side must have the same number of samples, but '{}' has {} and "
          "'{}' has {}",
          first_path, first->samples(), path, source->samples());
    }
    for (std::size_t i = 0; i < source->arrays().size(); ++i) {
      const SourceArray& array = source->arrays()[i];
      if (std::ranges::count(arrays, array.name, &SourceArray::name) > 0) {
        invalid("[source] two arrays would be called '{}', one of them from '{}'; rename a file",
                array.name, path);
      }
      arrays.push_back(array);
      from.push_back({part, i});
    }
  }
  return picked(std::move(parts), std::move(arrays), std::move(from));
}

std::unique_ptr<Source> pick_arrays(std::unique_ptr<Source> source,
                                    std::span<const std::string> names) {
  if (std::ranges::equal(names, source->arrays(), {}, {}, &SourceArray::name)) return source;
  std::vector<SourceArray> arrays;
  std::vector<PickedArrays::From> from;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(source->arrays(), name, &SourceArray::name);
    if (found == source->arrays().end()) {
      invalid("[source] there is no array '{}'; there are {}", name, describe(source->arrays()));
    }
    if (std::ranges::count(names, name) > 1) invalid("[source] array '{}' is named twice", name);
    arrays.push_back(*found);
    from.push_back({0, static_cast<std::size_t>(found - source->arrays().begin())});
  }
  std::vector<NamedSource> parts;
  parts.push_back({"", std::move(source)});
  return picked(std::move(parts), std::move(arrays), std::move(from));
}

}  // namespace tuckfold
