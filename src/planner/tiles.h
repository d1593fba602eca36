// Counts a layer's training step as a program of vertices on tiles, from its plain operators.
#pragma once

#include "structured/layer.h"
#include "tuckfold/devices.h"

namespace tuckfold {

// Needs device.tiles.
TileCount count_tiles(const DeviceInfo& device, const structured::Declaration& layer,
                      const LayerQuestion& asked);

}  // namespace tuckfold
