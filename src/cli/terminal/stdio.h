// "-" in place of a file: standard input as something that can be mapped, and standard output.
//
//   const FileReader reader(input_path("info", "-"));   // reads /dev/stdin, whatever it was
#pragma once

#include <span>
#include <string>

namespace tuckfold::cli {

// The path to open for an input as it was given. "-" becomes /dev/stdin; unless that is a file
// already, its bytes are first copied to one without a name in the temporary folder, so that memory
// stays flat. Throws InvalidArgument where it is a terminal, Io where it cannot be read.
std::string input_path(const char* verb, const std::string& given, bool quiet = true);

// Refuses "-" among files more than once.
void check_stdin_once(const char* verb, std::span<const std::string> files);

// Whether an output goes to standard output: "-", /dev/stdout, or another name of the same pipe or file.
bool is_stdout(const std::string& out);

// Prints what a verb has to say of its output: to standard output, or to standard error where the
// output itself goes to the former.
void print_report(const std::string& out, const std::string& text);

// Throws InvalidArgument where standard output is a terminal and --force was not given.
void check_stdout(const char* verb, bool force);

// Where a file is to be written that must be a file while it is: under its name, or for "-" and other
// pipes and devices in a temporary folder that is gone with this object.
class OutPath {
 public:
  OutPath(const char* verb, const std::string& given);
  OutPath(const OutPath&) = delete;
  OutPath& operator=(const OutPath&) = delete;
  ~OutPath();

  const std::string& path() const { return path_; }
  bool is_temporary() const { return !folder_.empty(); }
  // Copies the file to where it goes, if it is elsewhere.
  void finish();

 private:
  const char* verb_;
  std::string given_, folder_, path_;
};

}  // namespace tuckfold::cli
