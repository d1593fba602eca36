// Handles SIGBUS, which the system raises on any thread when a mapped file shrinks while it is
// read, or its disk fails. The program then names the file and exits with 5 instead of being
// killed. Files that it was writing stay as a kill leaves them.
#pragma once

namespace tuckfold::cli {

void install_bus_error_handler();

}  // namespace tuckfold::cli
