// HDF5 files by libhdf5: datasets whose leading axis counts samples. The library is not hardened
// against hostile files; what leads it to other files is refused here unless it is asked for.
#include <hdf5.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/dtype.h"
#include "base/fail.h"
#include "base/fill.h"
#include "base/text_scan.h"
#include "inputs/hdf5_attributes.h"
#include "inputs/hdf5_session.h"
#include "inputs/hdf5_types.h"
#include "inputs/join.h"
#include "inputs/slab.h"

namespace tuckfold {
namespace {

using hdf5::Attributes, hdf5::complaint, hdf5::dtype_by, hdf5::Handle, hdf5::Session;

// The type to read values as: the library converts their byte order. Types without a native name,
// and the numbers of an enumeration, are read unchanged.
Handle memory_type(hid_t type, DType dtype) {
  if (dtype == DType::F16) return hdf5::type_of(dtype);
  if (::H5Tget_class(type) == H5T_ENUM) return {::H5Tcopy(type), ::H5Tclose};
  return {::H5Tget_native_type(type, H5T_DIR_ASCEND), ::H5Tclose};
}

// The numbers of an attribute, a few at most; none where it is something else.
std::vector<double> attribute(hid_t data, const char* name) {
  constexpr hssize_t kMost = 16;
  if (::H5Aexists(data, name) <= 0) return {};
  const Handle attribute(::H5Aopen(data, name, H5P_DEFAULT), ::H5Aclose);
  if (!attribute) return {};
  const Handle type(::H5Aget_type(attribute.get()), ::H5Tclose);
  const Handle space(::H5Aget_space(attribute.get()), ::H5Sclose);
  const H5T_class_t kind = type ? ::H5Tget_class(type.get()) : H5T_NO_CLASS;
  const hssize_t count = space ? ::H5Sget_simple_extent_npoints(space.get()) : 0;
  if ((kind != H5T_INTEGER && kind != H5T_FLOAT) || count < 1 || count > kMost) return {};
  std::vector<double> values(static_cast<std::size_t>(count));
  if (kind == H5T_INTEGER && ::H5Tget_size(type.get()) == 8) {
    // Doubles skip some of these.
    std::vector<std::int64_t> whole(values.size());
    const bool is_signed = ::H5Tget_sign(type.get()) != H5T_SGN_NONE;
    const hid_t native = is_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
    if (::H5Aread(attribute.get(), native, whole.data()) < 0) return {};
    values.clear();
    for (const std::int64_t one : whole) {
      if (is_signed ? is_double(one) : is_double(static_cast<std::uint64_t>(one))) {
        values.push_back(is_signed ? static_cast<double>(one)
                                   : static_cast<double>(static_cast<std::uint64_t>(one)));
      }
    }
    return values;
  }
  if (::H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()) < 0) return {};
  return values;
}

// What netCDF names as missing, as values of the dtype: _FillValue and missing_value, and NaN
// beside them where the dtype has it.
std::vector<FillValue> fill_of(hid_t data, DType dtype) {
  std::vector<FillValue> fill;
  const auto add = [&](double number) {
    const std::optional<FillValue> value = fill_value_in(dtype, number);
    if (value && std::ranges::find(fill, *value) == fill.end()) fill.push_back(*value);
  };
  for (const char* name : {"_FillValue", "missing_value"}) {
    for (const double value : attribute(data, name)) add(value);
  }
  if (!fill.empty() && is_float(dtype)) add(std::numeric_limits<double>::quiet_NaN());
  return fill;
}

struct Dataset {
  Handle data, memory;
};

class Hdf5Source final : public Source {
 public:
  Hdf5Source(std::string path, std::vector<SourceArray> arrays, std::int64_t samples, Handle file,
             std::vector<Dataset> datasets)
      : Source(std::move(arrays), samples),
        path_(std::move(path)),
        file_(std::move(file)),
        datasets_(std::move(datasets)) {}
  ~Hdf5Source() override {
    const Session session;
    datasets_.clear();
    file_ = Handle();
  }

 private:
  void read_samples(std::size_t array, std::int64_t first, std::int64_t count,
                    std::byte* out) const override {
    const SourceArray& what = arrays()[array];
    const Dataset& dataset = datasets_[array];
    std::vector<hsize_t> start(what.sample.rank() + 1, 0), length(1, static_cast<hsize_t>(count));
    start[0] = static_cast<hsize_t>(first);
    for (const std::int64_t axis : what.sample) length.push_back(static_cast<hsize_t>(axis));
    {
      const Session session;
      const Handle space(::H5Dget_space(dataset.data.get()), ::H5Sclose);
      const Handle memory(
          ::H5Screate_simple(static_cast<int>(length.size()), length.data(), nullptr), ::H5Sclose);
      if (!space || !memory ||
          ::H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, length.data(),
                                nullptr) < 0 ||
          ::H5Dread(dataset.data.get(), dataset.memory.get(), memory.get(), space.get(),
                    H5P_DEFAULT, out) < 0) {
        fail(Errc::CorruptData, "[hdf5] '{}': dataset '{}' cannot be read: {}", path_, what.name,
             complaint());
      }
    }
    if (what.dtype == DType::Bool) normalize_bools(out, count * what.sample.elems());
  }

  std::string path_;
  Handle file_;
  std::vector<Dataset> datasets_;
};

[[noreturn]] void refuse_external(const std::string& path, const std::string& name,
                                  std::string_view what) {
  fail_over_arrays(Errc::Unsupported, path,
                   "[hdf5] '{}': '{}' is {}, so that other files would be read; add "
                   "--allow-external where you trust the file",
                   path, name, what);
}

// An object that the library cannot open: one that is damaged, or of a version that it does not know.
[[noreturn]] void refuse_unreadable(const std::string& path, const std::string& name) {
  const std::string reason = complaint();
  unsigned major = 0, minor = 0, release = 0;
  ::H5get_libversion(&major, &minor, &release);
  const bool version = reason.find("version") != reason.npos;
  fail_over_arrays(
      version ? Errc::Unsupported : Errc::CorruptData, path,
      "[hdf5] '{}': '{}' cannot be opened: {}; it is damaged{}", path, name, reason,
      version ? fmt::format(", or written by a later HDF5 than {}.{}.{}", major, minor, release)
              : "");
}

// Lists every dataset of a file by its path, each once, in the order of names. Links to other files
// are errors, are listed without being followed, or are followed. Objects that cannot be opened are
// errors, or listed by the names that they have.
enum class External : unsigned char { Refuse, Name, Follow };
enum class Unreadable : unsigned char { Refuse, Name };

class Listing {
 public:
  Listing(const std::string& path, External external, Unreadable unreadable)
      : path_(path), external_(external), unreadable_(unreadable) {}

  std::vector<std::string> of(hid_t file) {
    walk(file, "", 0);
    return std::move(names_);
  }

 private:
  static constexpr int kMostDeep = 32;  // the library calls itself for each

  struct Link {
    std::string name;
    H5L_type_t type;
  };

  void walk(hid_t group, const std::string& prefix, int depth) {
    if (depth > kMostDeep) {
      fail_over_arrays(Errc::Unsupported, path_, "[hdf5] '{}': groups nest at most {} deep", path_,
                       kMostDeep);
    }
    std::vector<Link> links;
    const auto note = [](hid_t, const char* name, const H5L_info_t* info, void* out) -> herr_t {
      static_cast<std::vector<Link>*>(out)->push_back({name, info->type});
      return 0;
    };
    if (::H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, note, &links) < 0) {
      cannot_open(prefix.empty() ? "/" : prefix);
    }
    for (const Link& link : links) {
      const std::string name = prefix + link.name;
      if (link.type == H5L_TYPE_SOFT) continue;  // to what has a name already
      if (link.type != H5L_TYPE_HARD && external_ == External::Refuse) {
        refuse_external(path_, name, "a link to another file");
      }
      if (link.type != H5L_TYPE_HARD && external_ == External::Name) {
        names_.push_back(name);
      } else {
        visit(group, link.name, name, depth);
      }
    }
  }

  void visit(hid_t group, const std::string& link, const std::string& name, int depth) {
    H5O_info_t info;
    if (::H5Oget_info_by_name(group, link.c_str(), &info, H5P_DEFAULT) < 0) {
      return cannot_open(name);
    }
    if (!seen_.emplace(info.fileno, info.addr).second) return;
    // A dataset that has lost a message of its header looks like a named type, which has no values.
    constexpr unsigned kDataspace = 1, kLayout = 8;  // numbers of messages
    const std::uint64_t of_datasets = (1u << kDataspace) | (1u << kLayout);
    if (info.type != H5O_TYPE_DATASET && (info.hdr.mesg.present & of_datasets) != 0) {
      return cannot_open(name);
    }
    if (info.type == H5O_TYPE_DATASET) names_.push_back(name);
    if (info.type == H5O_TYPE_DATASET || info.type == H5O_TYPE_NAMED_DATATYPE) return;
    const Handle inner(::H5Gopen2(group, link.c_str(), H5P_DEFAULT), ::H5Gclose);
    inner ? walk(inner.get(), name + "/", depth + 1) : cannot_open(name);
  }

  void cannot_open(const std::string& name) {
    if (unreadable_ == Unreadable::Refuse) refuse_unreadable(path_, name);
    names_.push_back(name);
  }

  const std::string& path_;
  External external_;
  Unreadable unreadable_;
  std::set<std::pair<unsigned long, haddr_t>> seen_;
  std::vector<std::string> names_;
};

// Whether something has this path, a group aside. Keeps the library's complaint of the last call.
bool is_there(hid_t file, const std::string& name) {
  const hid_t stack = ::H5Eget_current_stack();  // H5Eset_current_stack closes it
  bool found = true;
  for (std::size_t end = 0; found && end != name.npos;) {
    end = name.find('/', end + 1);
    found = ::H5Lexists(file, name.substr(0, end).c_str(), H5P_DEFAULT) > 0;
  }
  H5O_info_t info;
  const bool known = found && ::H5Oget_info_by_name(file, name.c_str(), &info, H5P_DEFAULT) >= 0;
  ::H5Eset_current_stack(stack);
  return found && !(known && info.type != H5O_TYPE_DATASET);
}

// Opens a dataset by its path; follows links to other files only if that is allowed.
Handle open_dataset(hid_t file, const std::string& path, const std::string& name,
                    bool allow_external) {
  bool external = false;
  const Handle access(::H5Pcreate(H5P_DATASET_ACCESS), ::H5Pclose);
  if (!allow_external) {
    const auto refuse = [](const char*, const char*, const char*, const char*, unsigned*, hid_t,
                           void* out) -> herr_t {
      *static_cast<bool*>(out) = true;
      return -1;
    };
    ::H5Pset_elink_cb(access.get(), refuse, &external);
  }
  Handle data(::H5Dopen2(file, name.c_str(), access.get()), ::H5Dclose);
  if (external) refuse_external(path, name, "reached by a link to another file");
  if (!data && is_there(file, name)) refuse_unreadable(path, name);
  if (!data) {
    fail_over_arrays(Errc::InvalidArgument, path, "[hdf5] '{}' has no dataset '{}'", path, name);
  }
  if (allow_external) return data;
  const Handle how(::H5Dget_create_plist(data.get()), ::H5Pclose);
  if (::H5Pget_external_count(how.get()) != 0) {
    refuse_external(path, name, "kept in other files");
  }
  if (::H5Pget_layout(how.get()) == H5D_VIRTUAL) refuse_external(path, name, "a virtual dataset");
  return data;
}

bool looks_like(const SourceInput& input) {
  constexpr std::string_view kMagic = "\x89HDF\r\n\x1a\n";
  const std::string_view text = input.text();
  for (const std::size_t at : {0, 512, 1024, 2048}) {  // after a user block
    if (at < text.size() && text.substr(at).starts_with(kMagic)) return true;
  }
  return false;
}

Shape shape_of(const Handle& space) {
  const int rank = space ? ::H5Sget_simple_extent_ndims(space.get()) : -1;
  std::vector<hsize_t> axes(static_cast<std::size_t>(std::clamp(rank, 0, H5S_MAX_RANK)));
  if (rank > 0) ::H5Sget_simple_extent_dims(space.get(), axes.data(), nullptr);
  Shape shape;
  for (const hsize_t axis : axes) shape.push_back(static_cast<std::int64_t>(axis));
  return shape;
}

// What values of a type are called in an error.
const char* kind_of(const Handle& type) {
  switch (type ? ::H5Tget_class(type.get()) : H5T_NO_CLASS) {
    case H5T_INTEGER:
    case H5T_FLOAT: return "numbers of another width";
    case H5T_STRING: return "strings";
    case H5T_COMPOUND: return "a compound type, as complex numbers and records are";
    case H5T_ENUM: return "an enumeration";
    case H5T_BITFIELD: return "bit fields";
    case H5T_OPAQUE: return "opaque bytes";
    case H5T_REFERENCE: return "references";
    case H5T_VLEN: return "lists of varying lengths";
    case H5T_ARRAY: return "an array type";
    case H5T_TIME: return "times";
    default: return "values of a type that is not known here";
  }
}

Handle open_file(const SourceInput& input) {
  if (input.inflated) {
    fail(Errc::Unsupported, "[hdf5] '{}' is a gzipped HDF5 file; decompress it with 'gzip -d'",
         input.path);
  }
  Handle file(::H5Fopen(input.path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), ::H5Fclose);
  if (!file) {
    fail(Errc::CorruptData, "[hdf5] '{}' cannot be opened: {}; copy it again", input.path,
         complaint());
  }
  return file;
}

std::unique_ptr<Source> open_one(const SourceInput& input, const SourceOptions& options) {
  const Session session;  // first, so that it outlives every handle
  const std::string& path = input.path;
  std::vector<SourceArray> arrays;
  std::vector<Dataset> datasets;
  std::int64_t samples = 0;
  Handle file = open_file(input);
  Attributes attributes;
  const External external = options.allow_external ? External::Follow : External::Refuse;
  const std::vector<std::string> names =
      options.arrays.empty() ? Listing(path, external, Unreadable::Refuse).of(file.get())
                             : options.arrays;
  for (const std::string& name : names) {
    Dataset dataset{.data = open_dataset(file.get(), path, name, options.allow_external)};
    const Handle type(::H5Dget_type(dataset.data.get()), ::H5Tclose);
    const Handle space(::H5Dget_space(dataset.data.get()), ::H5Sclose);
    const std::optional<DType> dtype = type ? dtype_by(type.get()) : std::nullopt;
    if (!dtype) {
      fail_over_arrays(Errc::Unsupported, path,
                       "[hdf5] '{}': dataset '{}' holds no numbers that can be read, but {}", path,
                       name, kind_of(type));
    }
    if (space && ::H5Sget_simple_extent_type(space.get()) == H5S_NULL) {
      fail_over_arrays(Errc::InvalidArgument, path, "[hdf5] '{}': dataset '{}' has no values", path,
                       name);
    }
    const Shape shape = shape_of(space);
    const Shape sample = sample_of(shape, "hdf5", path, name);
    if (datasets.empty()) samples = shape[0];
    if (shape[0] != samples) {
      fail_over_arrays(
          Errc::InvalidArgument, path,
          "[hdf5] '{}': arrays of a dataset have one number of samples, but '{}' has {} and '{}' "
          "has {}",
          path, arrays[0].name, samples, name, shape[0]);
    }
    try {
      if (shape.elems() > std::int64_t{1} << 56) throw Error(Errc::CorruptData, "");
    } catch (const Error&) {
      fail(Errc::CorruptData, "[hdf5] '{}': dataset '{}' cannot have the shape {}", path, name,
           to_string(shape));
    }
    dataset.memory = memory_type(type.get(), *dtype);
    attributes.add(name, dataset.data.get());
    arrays.push_back({name, *dtype, sample, fill_of(dataset.data.get(), *dtype)});
    datasets.push_back(std::move(dataset));
  }
  if (arrays.empty()) invalid("[hdf5] '{}' has no datasets", path);
  attributes.add_file(file.get());
  auto source = std::make_unique<Hdf5Source>(path, std::move(arrays), samples, std::move(file),
                                             std::move(datasets));
  source->set_about(std::move(attributes).take());
  return source;
}

std::vector<InputArray> list(const SourceInput& input, const SourceOptions& options) {
  const Session session;
  const Handle file = open_file(input);
  std::vector<InputArray> arrays;
  const External external = options.allow_external ? External::Follow : External::Name;
  for (const std::string& name : Listing(input.path, external, Unreadable::Name).of(file.get())) {
    InputArray array{.name = name, .dtype = "?", .shape = {}};
    try {
      const Handle data = open_dataset(file.get(), input.path, name, options.allow_external);
      const Handle type(::H5Dget_type(data.get()), ::H5Tclose);
      const Handle space(::H5Dget_space(data.get()), ::H5Sclose);
      array.shape = shape_of(space);
      if (space && ::H5Sget_simple_extent_type(space.get()) == H5S_NULL) {
        array.refused = "no values";
      } else if (const std::optional<DType> dtype = type ? dtype_by(type.get()) : std::nullopt) {
        array.dtype = to_string(*dtype);
        array.bytes = static_cast<std::uint64_t>(array.shape.elems()) * size_bytes(*dtype);
      } else {
        array.refused = "no numbers that can be read";
      }
    } catch (const Error& error) {
      const std::string_view text = error.what();
      array.refused = text.find("--allow-external") != text.npos
                          ? "in another file; --allow-external"
                          : "it cannot be opened: damaged, or of a later HDF5";
    }
    arrays.push_back(std::move(array));
  }
  return arrays;
}

}  // namespace

const SourceFormat kHdf5Source = {
    .name = "hdf5",
    .summary = "datasets with one leading axis, all of them or those that are named",
    .extensions = ".h5 .hdf5 .hdf .nc",
    .looks_like = looks_like,
    .open = open_each<open_one>,
    .list = list};

}  // namespace tuckfold
