#include "tuckfold/version.h"

namespace tuckfold {

std::string version() { return TUCKFOLD_VERSION; }

}  // namespace tuckfold
