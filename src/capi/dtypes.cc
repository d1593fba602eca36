// The table of dtypes as the C API lists it.
#include <fmt/format.h>

#include <vector>

#include "base/dtype.h"
#include "base/json.h"
#include "tuckfold/c.h"

namespace tuckfold::capi {
namespace {

template <class... Codes>
constexpr bool in_order(Codes... codes) {
  int next = 0;
  return ((codes == next++) && ...) && next == static_cast<int>(kDTypes.size());
}
static_assert(in_order(TUCKFOLD_F32, TUCKFOLD_F16, TUCKFOLD_BF16, TUCKFOLD_F64, TUCKFOLD_U8,
                       TUCKFOLD_I32, TUCKFOLD_I64, TUCKFOLD_U16, TUCKFOLD_I16, TUCKFOLD_I8,
                       TUCKFOLD_U32, TUCKFOLD_U64, TUCKFOLD_BOOL));

std::string dtypes_json() {
  std::vector<std::string> rows;
  for (const DType dtype : kDTypes) {
    const DTypeInfo& info = info_of(dtype);
    rows.push_back(fmt::format(R"({{"name": {}, "code": {}, "bytes": {}, "kind": {}}})",
                               json_string(info.name), static_cast<int>(dtype), info.bytes,
                               json_string(to_string(info.kind))));
  }
  return fmt::format("[{}]", fmt::join(rows, ", "));
}

}  // namespace
}  // namespace tuckfold::capi

const char* tuckfold_dtypes_json(void) {
  static const std::string json = tuckfold::capi::dtypes_json();
  return json.c_str();
}
