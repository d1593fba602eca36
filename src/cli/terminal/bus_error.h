// What happens where a mapped file shrinks while it is read, or its disk fails: the system raises
// SIGBUS at the access, on whatever thread. The program then says which file it was and exits with
// 5, in place of being killed. Files that it was writing stay as a kill leaves them.
#pragma once

namespace tuckfold::cli {

void install_bus_error_handler();

}  // namespace tuckfold::cli
