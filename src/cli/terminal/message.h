// What a verb says beside its result, on standard error. That a message cannot be written changes
// neither the work nor the exit status: a log on a full disk must not end a program.
//
//   warn("[pack] '{}' is stored as it is", name);   // "tuckfold: warning: [pack] 'x' is …"
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace tuckfold::cli {

void print_err(std::string_view text) noexcept;

template <class... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  print_err("tuckfold: " + fmt::format(text, std::forward<Args>(args)...) + '\n');
}

template <class... Args>
void warn(fmt::format_string<Args...> text, Args&&... args) {
  print_err("tuckfold: warning: " + fmt::format(text, std::forward<Args>(args)...) + '\n');
}

// Opens /dev/null for standard streams that are closed: a file that is opened later must not get
// the number of one, and with it what is printed. Standard input and output stay errors to use.
// Also has writes past `ulimit -f` fail instead of ending the program.
void guard_streams() noexcept;

}  // namespace tuckfold::cli
