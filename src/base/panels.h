// The panel of a thread; see ReadPanels and WritePanels of strided.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tuckfold {

struct Panel {
  const void* view = nullptr;       // the FlatReader or FlatWriter whose it is; null: nobody's
  std::byte* bytes = nullptr;       // lines, a PanelGrid's row apart
  std::int64_t begin = 0, end = 0;  // elements of the sequence that there is room for
  std::int64_t written_begin = 0, written_end = 0;  // those that are not yet in the tensor
  bool stream = false;                              // whether they go there by non-temporal stores
};

Panel& thread_panel() noexcept;

}  // namespace tuckfold
