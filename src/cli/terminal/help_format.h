// Wraps help texts to the width of the terminal. Prose is filled, descriptions stay in their
// column, and examples are unchanged, so that they can be copied.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tuckfold::cli {

// Of the terminal that standard output is, else $COLUMNS, else 100; 40 to 120, since longer lines
// are hard to read.
std::size_t terminal_columns();
// Of the terminal that a file is; 0 where it is none, or has no width.
std::size_t columns_of(int file);

// `help` as CLI11 prints it, with no line past `columns` but examples and words that are longer. On a
// narrow terminal descriptions are below their options.
std::string fit_help(std::string_view help, std::size_t columns);

}  // namespace tuckfold::cli
