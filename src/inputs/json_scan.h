// Walks JSON text for readers that know what they expect. Every step stops at the end of the text;
// nesting is skipped with a counter, so no depth exhausts the stack.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tuckfold {

class JsonScanner {
 public:
  // `verb` and `path` are for messages.
  JsonScanner(std::string_view text, std::string_view verb, std::string_view path)
      : rest_(text), verb_(verb), path_(path) {}

  [[noreturn]] void corrupt(std::string_view rule) const;

  bool accept(char wanted);
  void expect(char wanted);
  void expect_end();

  // Between the entries of an object or an array: true where another follows. Begin with first.
  bool more(char close, bool& first);

  std::string string();   // escapes resolved, to UTF-8
  std::int64_t length();  // a whole number that is not negative
  void skip_value();

 private:
  void skip_space();
  std::uint32_t hex();

  std::string_view rest_, verb_, path_;
};

}  // namespace tuckfold
