// Text in aligned columns, and numbers formatted for them.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace tuckfold::cli {

class Table {
 public:
  // A title that begins with '<' heads a column of words, set flush left; numbers are flush right.
  explicit Table(std::vector<std::string> titles);
  void add(std::vector<std::string> cells);
  // As it fits the terminal that standard output is, if it is one: rows that are too long become
  // lists of titles and cells.
  std::string print(std::string_view indent = "") const;

 private:
  std::string print_lists(std::string_view indent) const;

  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

// Prints everything that a verb prints; a full disk is an error, too.
void print_out(std::string_view text);

}  // namespace tuckfold::cli
