// CIFAR's Python batches: a pickled dict of an array of bytes and lists of labels.
#include <algorithm>
#include <initializer_list>

#include "base/fail.h"
#include "inputs/join.h"
#include "inputs/pickle.h"
#include "inputs/slab.h"

namespace tuckfold {
namespace {

constexpr std::int64_t kPixels = 3 * 32 * 32;

// A protocol that has bytes, and a dict.
bool looks_like(const SourceInput& input) {
  const std::string_view text = input.text();
  return text.size() > 3 && text[0] == '\x80' && text.substr(0, 64).find('}') != text.npos;
}

class Batch {
 public:
  explicit Batch(const SourceInput& input)
      : path_(input.path), pickle_(input.bytes(), input.path) {}

  using Node = Pickle::Node;
  using Kind = Pickle::Kind;

  [[noreturn]] void refuse(std::string_view rule) const {
    fail(Errc::Unsupported,
         "[cifar_pickle] '{}' is no batch of CIFAR's: {}; save it with numpy.savez", path_, rule);
  }

  const std::vector<std::shared_ptr<const Bytes>>& made() const { return pickle_.made(); }

  const Node* find(std::string_view key) const { return pickle_.find(pickle_.root(), key); }

  // The bytes of an array of n x 3072 bytes.
  std::span<const std::byte> pixels() const {
    const Node* data = find("data");
    if (data == nullptr) refuse("it has no entry 'data'");
    const Parts parts = parts_of(*data);
    const Node& shape = *parts.shape;
    if (shape.kind != Kind::Tuple || shape.items.size() != 2 || at(shape, 1).number != kPixels) {
      refuse("its array must have rows of 3072");
    }
    if (!is_call(*parts.dtype, {"numpy"}, "dtype")) refuse("its data are no array of numpy's");
    const Node& arguments = at(*parts.dtype, 1);
    if (arguments.items.empty() || Pickle::text(at(arguments, 0)) != "u1") {
      refuse("its array must be of u1");
    }
    if (parts.fortran) refuse("its array must not be in Fortran order");
    const Node& bytes = *parts.bytes;
    const std::int64_t rows = at(shape, 0).number;
    if (bytes.kind != Kind::Text || rows < 0 ||
        rows != static_cast<std::int64_t>(bytes.bytes.size()) / kPixels ||
        bytes.bytes.size() % kPixels != 0) {
      fail(Errc::CorruptData, "[cifar_pickle] '{}': {} rows of 3072 bytes need other than {} bytes",
           path_, rows, bytes.bytes.size());
    }
    return bytes.bytes;
  }

  std::shared_ptr<const Bytes> labels(const Node& list, int classes) const {
    if (list.kind != Kind::List) refuse("its labels are no list");
    const std::shared_ptr<Bytes> bytes = Bytes::scratch(list.items.size(), "cifar_pickle");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      const Node& label = at(list, i);
      if (label.kind != Kind::Int || label.number < 0 || label.number >= classes) {
        fail(Errc::CorruptData, "[cifar_pickle] '{}': label {} must be one of 0..{}", path_, i,
             classes - 1);
      }
      bytes->scratch_data()[i] = static_cast<std::byte>(label.number);
    }
    return bytes;
  }

 private:
  const Node& at(const Node& node, std::size_t index) const { return pickle_[node.items[index]]; }

  bool is_call(const Node& node, std::initializer_list<std::string_view> modules,
               std::string_view name) const {
    return node.kind == Kind::Call &&
           std::any_of(modules.begin(), modules.end(), [&](std::string_view module) {
             return pickle_.is_name(at(node, 0), module, name);
           });
  }

  struct Parts {
    const Node *shape, *dtype, *bytes;
    bool fortran;
  };

  // numpy pickles an array as a call that makes an empty one, and a state (version, shape, dtype,
  // Fortran order, bytes); from protocol 5 on as a call with (bytes, dtype, shape, order).
  Parts parts_of(const Node& array) const {
    if (is_call(array, {"numpy._core.numeric", "numpy.core.numeric"}, "_frombuffer")) {
      const Node& given = at(array, 1);
      if (given.items.size() != 4) refuse("its array has another form than numpy's");
      return {.shape = &at(given, 2),
              .dtype = &at(given, 1),
              .bytes = &at(given, 0),
              .fortran = Pickle::text(at(given, 3)) != "C"};
    }
    if (!is_call(array, {"numpy._core.multiarray", "numpy.core.multiarray"}, "_reconstruct") ||
        array.items.size() != 3 || at(array, 2).kind != Kind::Tuple) {
      refuse("its data are no array of numpy's");
    }
    const Node& state = at(array, 2);
    if (state.items.size() != 5) refuse("its array has another state than numpy's");
    return {.shape = &at(state, 1),
            .dtype = &at(state, 2),
            .bytes = &at(state, 4),
            .fortran = at(state, 3).number != 0};
  }

  std::string_view path_;
  Pickle pickle_;
};

std::unique_ptr<Source> open_one(const SourceInput& input, const SourceOptions&) {
  const Batch batch(input);
  const std::span<const std::byte> pixels = batch.pixels();
  SlabBuilder builder("cifar_pickle", input.path);
  builder.keep(input.file);
  for (const std::shared_ptr<const Bytes>& made : batch.made()) builder.keep(made);
  builder.add("image", pixels.data(), DType::U8,
              {static_cast<std::int64_t>(pixels.size()) / kPixels, 3, 32, 32});
  struct Label {
    const char *key, *name;
    int classes;
  };
  for (const auto& [key, name, classes] :
       {Label{"labels", "label", 10}, Label{"coarse_labels", "coarse_label", 20},
        Label{"fine_labels", "label", 100}}) {
    const Pickle::Node* list = batch.find(key);
    if (list == nullptr) continue;
    const std::shared_ptr<const Bytes> labels = batch.labels(*list, classes);
    builder.keep(labels);
    builder.add(name, labels->span().data(), DType::U8,
                {static_cast<std::int64_t>(labels->span().size())});
  }
  return builder.finish();
}

}  // namespace

const SourceFormat kCifarPickleSource = {
    .name = "cifar_pickle",
    .summary = "CIFAR-10's and CIFAR-100's Python batches; nothing in them is run",
    .extensions = "",
    .looks_like = looks_like,
    .open = open_each<open_one>};

}  // namespace tuckfold
