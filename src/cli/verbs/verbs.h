// The verbs of the command line: each adds itself, options and all, and runs when it was chosen.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal/command.h"

namespace tuckfold::cli {

void add_pack(Command& app);
void add_unpack(Command& app);
void add_slice(Command& app);
void add_cat(Command& app);
void add_info(Command& app);
void add_inputs(Command& app);
void add_verify(Command& app);
void add_repair(Command& app);
void add_diff(Command& app);
void add_convert(Command& app);
void add_view(Command& app);
void add_codecs(Command& app);
void add_bench(Command& app);
void add_eval(Command& app);
void add_choose(Command& app);
void add_export(Command& app);
void add_fits(Command& app);
void add_time(Command& app);
void add_doctor(Command& app);
void add_completion(Command& app);
void add_man(Command& app);
void add_help(Command& app);

// Runs the program `tuckfold-VERB`, found beside this one or on PATH, in place of this one. Returns
// only if there is none. `arguments` begin with the verb and end with a null pointer.
void run_external(const std::string& verb, char** arguments);

// Moves files, which exist or end in .npy and are not specs, from one list to the other: in
// `--codec a b file.npy` the parser takes the file for a codec.
void take_files(std::vector<std::string>& codecs, std::vector<std::string>& files);

// "unknown verb 'benhc'; did you mean 'bench'?", or else what there is.
std::string unknown_text(std::string_view kind, std::string_view word,
                         std::span<const std::string_view> candidates);

}  // namespace tuckfold::cli
