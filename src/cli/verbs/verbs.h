// The verbs of the command line: each adds itself, options and all, and runs when it was chosen.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tuckfold::cli {

void add_pack(CLI::App& app);
void add_unpack(CLI::App& app);
void add_slice(CLI::App& app);
void add_cat(CLI::App& app);
void add_info(CLI::App& app);
void add_verify(CLI::App& app);
void add_repair(CLI::App& app);
void add_diff(CLI::App& app);
void add_convert(CLI::App& app);
void add_view(CLI::App& app);
void add_codecs(CLI::App& app);
void add_bench(CLI::App& app);
void add_eval(CLI::App& app);
void add_choose(CLI::App& app);
void add_export(CLI::App& app);
void add_fits(CLI::App& app);
void add_time(CLI::App& app);
void add_doctor(CLI::App& app);
void add_completion(CLI::App& app);
void add_man(CLI::App& app);
void add_help(CLI::App& app);

// Runs the program `tuckfold-VERB`, found beside this one or on PATH, in place of this one. Returns
// only if there is none. `arguments` begin with the verb and end with a null pointer.
void run_external(const std::string& verb, char** arguments);

// Moves what ends in .npy, which no spec does, from one list to the other: in `--codec a b
// file.npy` the parser takes the file for a codec.
void take_files(std::vector<std::string>& codecs, std::vector<std::string>& files);

// "unknown verb 'benhc'; did you mean 'bench'?", or else what there is.
std::string unknown_text(std::string_view kind, std::string_view word,
                         std::span<const std::string_view> candidates);

}  // namespace tuckfold::cli
