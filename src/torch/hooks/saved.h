// What autograd holds in place of a saved tensor, and what is known of its storage.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "torch/hooks/program.h"

namespace tuckfold::hooks {

struct Handle;

// How a tensor is stored, and the way back.
struct Form {
  bool whole = false;  // whether every value comes back, not only what some backward reads
  virtual ~Form() = default;
  virtual at::Tensor decode(Handle& handle) const = 0;
  // For a recipe, whose next reader may be far: nothing is kept for it.
  virtual at::Tensor once(Handle& handle) const { return decode(handle); }
  // For a recipe, just before the node that saved it: it is kept for that one.
  virtual at::Tensor ahead(Handle& handle) const { return once(handle); }
  virtual std::size_t nbytes() const { return 0; }
  // Whether a codec changed the values, or what they are made again from.
  virtual bool changes() const { return false; }
};

// A storage that one or more saved tensors look into.
struct Record {
  Record(c10::intrusive_ptr<Program> of, const at::Tensor& x, std::int64_t in);

  c10::intrusive_ptr<Program> program;
  const void* storage;
  std::size_t nbytes;
  std::int64_t stream;
  std::vector<std::weak_ptr<Handle>> handles;
  bool pinned = false;  // whether another storage is recomputed from it

  // Guards what backward changes, and the forms of handles.
  std::mutex mutex;
  at::Tensor cache;  // decoded, for the next reader
  std::vector<const Handle*> unread;
  const Form* gate = nullptr;  // whose bits the cache has, so that its readers read that
  bool is_gate_read = false;   // whether they had it otherwise

  std::vector<std::shared_ptr<Handle>> live() const;
};

// What a node gets in place of what it saved.
struct Again {
  virtual ~Again() = default;
  virtual at::Tensor value() = 0;  // not defined: what was saved is right
};

// One saved tensor. Autograd owns it, through the node that saved it.
struct Handle {
  Handle(std::shared_ptr<Record> of, const Slot& like) : record(std::move(of)), slot(&like) {}

  std::shared_ptr<Record> record;
  const Slot* slot;  // of the record's program
  at::Tensor tensor;
  std::uint32_t version = 0;
  std::shared_ptr<const Form> form;
  std::shared_ptr<Again> again;  // null: none
  bool is_source = false;        // whether a recipe reads its values
  std::int64_t maker = -1, maker_output = 0;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> last;  // that backward was given

  at::Tensor value();  // with the bits that backward needs
  at::Tensor read();   // for what follows from its values
  at::Tensor ahead();  // for a recipe
  at::Tensor given();  // what backward was last given, if it still has that; else as for a recipe
  bool is_changed();   // whether its form changes values
  void check() const;  // raises where the tensor was changed in place
  bool is_unchanged() const;
  std::shared_ptr<const Form> stored();
  bool is_as_made() const;
};

// Raises what autograd raises; it does not look itself where there are hooks.
void check_version(const at::Tensor& tensor, std::uint32_t version, const std::string& origin,
                   std::int64_t output_nr);

// A tensor that stays as it is.
struct Kept {
  at::Tensor tensor;
  std::uint32_t version = 0;
  std::string origin;
  std::int64_t output_nr = 0;
  bool is_copy = false;  // which nobody else can change

  at::Tensor value() const;
};

// x as it was saved.
Kept kept_of(const at::Tensor& x);

// A recipe with the values of a pass.
struct Instance {
  using Leaf = std::variant<std::shared_ptr<Handle>, Kept, std::shared_ptr<const Instance>>;
  c10::intrusive_ptr<Program> program;
  const Recipe* recipe = nullptr;
  std::vector<Leaf> leaves;  // in the order of arguments, depth first
  int threads = 1;

  // gate: bits for what it makes; is_gated: whether they were applied.
  at::Tensor run(const at::Tensor& gate, bool& is_gated) const;
  bool is_changed() const;  // whether a codec changed what it reads
};

// Forms of a storage that nobody else holds, one for each of `group.forms` but for recipes; nothing
// if they would not be smaller.
std::shared_ptr<const Form> form_of(const FormSpec& spec, const Handle& handle);
std::shared_ptr<const Form> lossy_form(const FormSpec& spec, const at::Tensor& x, std::int64_t seed,
                                       std::shared_ptr<const Form> mask);
// Has values that are unpacked, or made again, read the bits of a ReLU that are stored beside them.
void give_gate(const Form& form, const std::shared_ptr<const Form>& bits);
std::shared_ptr<const Form> recomputed(std::shared_ptr<const Instance> instance);
// Our operator of that name, on what dense tensors have in their storage.
void normalize_into(const at::Tensor& x, const std::vector<at::Tensor>& add,
                    const std::vector<at::Tensor>& factors, std::int64_t inner, bool relu,
                    const at::Tensor& out);
void normalize_rows_into(const at::Tensor& x, const std::vector<at::Tensor>& factors,
                         const at::Tensor& out);
// What block_quant stored of a whole storage, as one row.
struct PackedRow {
  at::Tensor bytes;
  const std::string* codec;
  const Meta* like;  // of the tensor that looks into it
};
// Nothing where the handle is stored otherwise, or decoded already.
std::optional<PackedRow> packed_row(const Handle& handle);
// Our operator of that name: the row, as the tensor that looks into it.
struct After {
  at::Tensor scale, shift;
  std::int64_t inner = 1;
  bool relu = false;
  std::optional<at::Tensor> add, packed_add, add_scale, add_shift, gate;
};
at::Tensor unpack_then(const PackedRow& row, const After& after);
at::Tensor unpack_gelu(const PackedRow& row);
at::Tensor unpack_rows(const PackedRow& row, const std::vector<at::Tensor>& factors,
                       at::ScalarType dtype);
// Whether unpack_then adds the other while both are unpacked.
bool adds_packed(const PackedRow& row, const PackedRow& other);
// The instance of a form that is recomputed, else null.
std::shared_ptr<const Instance> instance_of(const Form* form);
bool is_lossy(const Form* form);
// What is not finite if the values are not.
at::Tensor witness_of(const Form& form, const FormSpec& spec, const Handle& handle);

// Out of autograd and autocast, which had their say when the pass ran.
struct Outside {
  Outside();
  c10::impl::ExcludeDispatchKeyGuard guard;
};

}  // namespace tuckfold::hooks
