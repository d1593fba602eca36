#include "cli/dataset/array_sink.h"

#include <filesystem>
#include <optional>

#include "base/fail.h"
#include "base/io/new_file.h"
#include "inputs/hdf5_writer.h"
#include "inputs/npy.h"
#include "inputs/zip_writer.h"

namespace tuckfold::cli {
namespace {

NewFile::Replace replace(const ArrayOut& out) {
  return out.force ? NewFile::Replace::Yes : NewFile::Replace::No;
}

ByteSpan bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// A file for each array, which gets its name when it is complete.
class FileSink final : public ArraySink {
 public:
  explicit FileSink(const ArrayOut& out) : out_(out) {}

  void begin(const SourceArray& array, DType dtype, const Shape& shape) override {
    const std::string path = out_.path_of(array);
    if (out_.kind == ArrayOut::Kind::Folder) make_folder_of(path);
    file_.emplace(out_.verb, path, replace(out_));
    if (out_.kind != ArrayOut::Kind::Bytes) file_->write(bytes_of(npy_header_text(dtype, shape)));
  }
  void add(std::span<const std::byte> rows) override { file_->write(rows); }
  void end() override {
    file_->finish();
    file_.reset();
  }

 private:
  void make_folder_of(const std::string& path) const {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    std::error_code refused;
    std::filesystem::create_directories(folder, refused);
    if (refused) {
      fail(Errc::Io, "[{}] cannot create the folder '{}': {}", out_.verb, folder.string(),
           refused.message());
    }
  }

  const ArrayOut& out_;
  std::optional<NewFile> file_;
};

class NpzSink final : public ArraySink {
 public:
  explicit NpzSink(const ArrayOut& out)
      : file_(out.verb, out.out, replace(out)),
        zip_([this](ByteSpan bytes) { file_.write(bytes); }) {}

  void begin(const SourceArray& array, DType dtype, const Shape& shape) override {
    const std::string header = npy_header_text(dtype, shape);
    zip_.begin(array.name + ".npy",
               header.size() + static_cast<std::uint64_t>(shape.elems()) * size_bytes(dtype));
    zip_.add(bytes_of(header));
  }
  void add(std::span<const std::byte> rows) override { zip_.add(rows); }
  void finish() override {
    zip_.finish();
    file_.finish();
  }

 private:
  NewFile file_;
  ZipWriter zip_;
};

class Hdf5Sink final : public ArraySink {
 public:
  explicit Hdf5Sink(const ArrayOut& out) : file_(out.verb, out.out, replace(out)) {
    if (file_.is_stream()) {
      invalid("[{}] HDF5 is not written front to back, and '{}' is a pipe or a device; name a file",
              out.verb, out.out);
    }
    writer_.emplace(file_.name_meanwhile(), out.out);
    if (!out.metadata.empty()) all_ = tuckfold::Json::parse(out.metadata);
    const tuckfold::Json* source = object_in(&all_, "source");
    of_arrays_ = {object_in(source, "array_attributes"),
                  object_in(source, "array_attribute_types")};
    writer_->set_attributes(
        {object_in(source, "attributes"), object_in(source, "attribute_types")});
  }

  void begin(const SourceArray& array, DType dtype, const Shape& shape) override {
    const AttributesJson attributes = {object_in(of_arrays_.values, array.name),
                                       object_in(of_arrays_.types, array.name)};
    writer_->begin(array.name, dtype, shape, attributes, array.fill);
  }
  void add(std::span<const std::byte> rows) override { writer_->add(rows); }
  void finish() override {
    writer_->finish();
    writer_.reset();
    file_.finish();
  }

 private:
  // The member of an object that is one itself, or null.
  static const tuckfold::Json* object_in(const tuckfold::Json* object, std::string_view key) {
    const tuckfold::Json* found = object == nullptr ? nullptr : object->find(key);
    return found != nullptr && found->kind == tuckfold::Json::Kind::Object ? found : nullptr;
  }

  NewFile file_;
  std::optional<Hdf5Writer> writer_;
  tuckfold::Json all_;
  AttributesJson of_arrays_;
};

}  // namespace

std::unique_ptr<ArraySink> open_sink(const ArrayOut& out) {
  switch (out.kind) {
    case ArrayOut::Kind::Npz: return std::make_unique<NpzSink>(out);
    case ArrayOut::Kind::Hdf5: return std::make_unique<Hdf5Sink>(out);
    default: return std::make_unique<FileSink>(out);
  }
}

}  // namespace tuckfold::cli
