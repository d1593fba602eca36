// tuckfold doctor: what this installation has, and the remedy for what is missing.
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>

#include "base/fail.h"
#include "base/parallel.h"
#include "base/target.h"
#include "cli/bench/report.h"
#include "cli/terminal/table.h"
#include "cli/verbs/verbs.h"
#include "codec/zfp/zfp_library.h"
#include "tuckfold/codec.h"
#include "tuckfold/version.h"

namespace tuckfold::cli {
namespace {

namespace fs = std::filesystem;

struct Finding {
  std::string what, found;
  std::string remedy;  // empty: nothing is missing
};

Finding cpu() {
  const std::vector<std::string> targets = cpu_targets();
  std::string found = fmt::format("{}; {} threads", cpu_target(), thread_count(0));
  if (targets.size() > 1)
    found += fmt::format("; also {}", fmt::join(targets.begin() + 1, targets.end(), ", "));
  const bool slow = targets.front() != "avx3" && targets.front() != "avx2";
  return {"SIMD", found, slow ? "kernels are made for AVX2 and AVX-512; others are slower" : ""};
}

Finding cuda() {
  if (!has_cuda()) return {"CUDA", "not in this build", "build where nvcc is found"};
  const int devices = cuda_devices();
  if (devices == 0) return {"CUDA", "built in, no device", "install NVIDIA's driver"};
  return {"CUDA", fmt::format("{} device{}", devices, devices == 1 ? "" : "s"), ""};
}

Finding zfp() {
  try {
    zfp_library();
    return {"libzfp", "found", ""};
  } catch (const Error& error) {
    return {"libzfp", "not found", "for the codec zfp install libzfp 1.0"};
  }
}

// The first lines that a program prints; empty if there is none.
std::string said_by(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::array<char, 512> text{};
  if (pipe == nullptr) return "";
  const std::size_t bytes = std::fread(text.data(), 1, text.size(), pipe.get());
  std::string line(text.data(), bytes);
  return line.substr(0, line.find('\n'));
}

// The Python whose package runs this program, else the first on PATH.
Finding python() {
  // Finds installed packages without importing them: torch takes seconds.
  const std::string found = said_by(
      "\"${TUCKFOLD_PYTHON:-python3}\" -c 'import sys, importlib.metadata as m\n"
      "have = {d.metadata[\"Name\"]: d.version for d in m.distributions()}\n"
      "print(\"Python \" + sys.version.split()[0], *[f\"{n} {have[n]}\" for n in (\"torch\", "
      "\"numpy\", \"tuckfold\") if n in have], sys.executable, sep=\", \")' 2>/dev/null");
  if (found.empty()) return {"Python", "no python3 on PATH", "only verbs of this program will run"};
  std::string remedy;
  if (found.find("tuckfold ") == found.npos) remedy = "pip install tuckfold, for its package";
  if (found.find("torch ") == found.npos) remedy = "pip install torch, for tuckfold.torch";
  return {"Python", found, remedy};
}

// Programs tuckfold-VERB, each once.
Finding verbs() {
  std::set<std::string> names;
  const char* path = std::getenv("PATH");
  std::string folders = path == nullptr ? "" : path;
  for (std::size_t at = 0; at < folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    std::error_code unreadable;
    for (const auto& entry : fs::directory_iterator(folders.substr(at, end - at), unreadable)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("tuckfold-")) names.insert(name);
    }
    at = end + 1;
  }
  return {"verbs on PATH", names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")), ""};
}

Finding path_of(const char* what, const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return {what, fmt::format("{} is not set", variable), ""};
  std::error_code unreadable;
  const bool exists = fs::exists(value, unreadable);
  return {what, value, exists ? "" : fmt::format("there is no such folder; correct {}", variable)};
}

void run(bool json) {
  const Finding all[] = {{"tuckfold", version(), ""},
                         cpu(),
                         cuda(),
                         zfp(),
                         python(),
                         verbs(),
                         path_of("data", "TUCKFOLD_DATA"),
                         path_of("HDF5 plug-ins", "HDF5_PLUGIN_PATH")};
  if (json) {
    Json list = Json::array();
    for (const Finding& one : all) {
      list.push_back({{"what", one.what}, {"found", one.found}, {"remedy", one.remedy}});
    }
    return print_out(print_json(list));
  }
  Table table({"<", "<found", "<what to do"});
  for (const Finding& one : all) table.add({one.what, one.found, one.remedy});
  print_out(table.print());
}

}  // namespace

void add_doctor(Command& app) {
  const auto json = std::make_shared<bool>(false);
  Command verb = app.add_subcommand("doctor", "Check this installation");
  verb.add_flag("--json", *json, "Print a JSON array of objects");
  verb.footer("Example:\n  tuckfold doctor");
  verb.callback([json] { run(*json); });
}

}  // namespace tuckfold::cli
