// Handles, records and the check of versions.
#include "torch/hooks/saved.h"

#include <ATen/ATen.h>

#include <sstream>

namespace tuckfold::hooks {
namespace {

bool is_plain(const at::Tensor& x) {
  if (!x.defined() || x.layout() != at::kStrided || !x.has_storage()) return false;
  constexpr c10::DispatchKeySet kOthers{
      c10::DispatchKey::Python,           c10::DispatchKey::Conjugate,
      c10::DispatchKey::Negative,         c10::DispatchKey::ZeroTensor,
      c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
      c10::DispatchKey::Functionalize,    c10::DispatchKey::NestedTensor};
  return !x.key_set().has_any(kOthers) && !x.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

std::string type_of(const at::Tensor& x) {
  return std::string("torch.") + (x.is_cuda() ? "cuda." : "") + c10::toString(x.scalar_type()) +
         "Tensor";
}

}  // namespace

bool Meta::fits_but_for_place(const at::Tensor& x) const {
  return is_plain(x) && x.scalar_type() == dtype && x.device() == device && x.sizes() == sizes &&
         x.strides() == strides;
}

bool Meta::fits(const at::Tensor& x) const {
  return fits_but_for_place(x) && x.storage_offset() == offset;
}

at::Tensor Meta::empty() const {
  return at::empty_strided(sizes, strides, at::TensorOptions().dtype(dtype).device(device));
}

at::Tensor Meta::view_of(const at::Tensor& base) const {
  Outside outside;
  return base.as_strided(sizes, strides, offset);
}

at::Tensor Meta::view_of(c10::Storage storage) const {
  Outside outside;
  const at::Tensor x = at::empty({0}, at::TensorOptions().dtype(dtype).device(device));
  return x.set_(std::move(storage), offset, sizes, strides);
}

Record::Record(c10::intrusive_ptr<Program> of, const at::Tensor& x, std::int64_t in)
    : program(std::move(of)),
      storage(x.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()),
      nbytes(x.unsafeGetTensorImpl()->unsafe_storage().nbytes()),
      stream(in) {}

std::vector<std::shared_ptr<Handle>> Record::live() const {
  std::vector<std::shared_ptr<Handle>> found;
  found.reserve(handles.size());
  for (const auto& each : handles) {
    if (auto handle = each.lock()) found.push_back(std::move(handle));
  }
  return found;
}

void check_version(const at::Tensor& tensor, std::uint32_t version, const std::string& origin,
                   std::int64_t output_nr) {
  const std::uint32_t now = tensor.unsafeGetTensorImpl()->version_counter().current_version();
  if (now == version) return;
  std::ostringstream made_by;
  if (!origin.empty()) made_by << ", which is output " << output_nr << " of " << origin << ",";
  TORCH_CHECK(false,
              "one of the variables needed for gradient computation has been modified by an "
              "inplace operation: [",
              type_of(tensor), " ", tensor.sizes(), "]", made_by.str(), " is at version ", now,
              "; expected version ", version,
              " instead. Hint: enable anomaly detection to find the operation that failed to "
              "compute its gradient, with torch.autograd.set_detect_anomaly(True, "
              "check_nan=False).");
}

at::Tensor Handle::value() {
  std::shared_ptr<const Form> stored;
  at::Tensor held;
  {
    const std::lock_guard lock(record->mutex);
    stored = form, held = tensor;
  }
  if (stored == nullptr) {
    check_version(held, version, slot->origin, slot->output_nr);
    return held;
  }
  at::Tensor decoded = stored->decode(*this);
  const std::lock_guard lock(record->mutex);
  last.emplace(decoded.storage().getWeakStorageImpl());
  return decoded;
}

at::Tensor Handle::given() {
  c10::intrusive_ptr<c10::StorageImpl> storage;
  {
    const std::lock_guard lock(record->mutex);
    if (last.has_value()) storage = last->lock();
  }
  return storage ? slot->meta.view_of(c10::Storage(std::move(storage))) : read();
}

void Handle::check() const {
  at::Tensor held;
  {
    const std::lock_guard lock(record->mutex);
    held = tensor;
  }
  if (held.defined()) check_version(held, version, slot->origin, slot->output_nr);
}

bool Handle::is_changed() {
  const auto as = stored();
  return as != nullptr && as->changes();
}

Kept kept_of(const at::Tensor& x) {
  if (!x.defined()) return {};
  const std::shared_ptr<Node> made = x.grad_fn();
  const at::NoGradGuard no_grad;
  // A leaf as it is, since `.data =` may replace its values.
  return {.tensor = made == nullptr ? x : x.detach(),
          .version = x.unsafeGetTensorImpl()->version_counter().current_version(),
          .origin = made == nullptr ? std::string() : made->name(),
          .output_nr = made == nullptr ? 0 : static_cast<std::int64_t>(x.output_nr())};
}

at::Tensor Kept::value() const {
  if (!is_copy) check_version(tensor, version, origin, output_nr);
  return tensor;
}

std::shared_ptr<const Form> Handle::stored() {
  const std::lock_guard lock(record->mutex);
  return form;
}

at::Tensor Handle::read() {
  const auto as = stored();
  return as != nullptr ? as->once(*this) : value();
}

at::Tensor Handle::ahead() {
  const auto as = stored();
  return as != nullptr ? as->ahead(*this) : value();
}

bool Handle::is_unchanged() const {
  return !tensor.defined() ||
         tensor.unsafeGetTensorImpl()->version_counter().current_version() == version;
}

bool Handle::is_as_made() const {
  if (version == 0 || slot->is_output) return true;
  for (const auto& other : record->live()) {
    if (other->slot->is_output && other->version == version) return true;
  }
  return false;
}

}  // namespace tuckfold::hooks
