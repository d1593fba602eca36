# The command line tool. It takes the library's objects rather than its exports: benchmarks use the
# library's own pool and copy.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PNG REQUIRED)

tuckfold_module(cli USES choose container planner inputs
                LIBRARIES CLI11::CLI11 nlohmann_json::nlohmann_json PNG::PNG PRECOMPILE <nlohmann/json.hpp>)

add_executable(tuckfold_tool src/cli/main.cc)
tuckfold_compile(tuckfold_tool)
set_target_properties(tuckfold_tool PROPERTIES OUTPUT_NAME tuckfold
                                              RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
tuckfold_use(tuckfold_tool cli)

add_executable(real_bench EXCLUDE_FROM_ALL bench/cpu/real_bench.cc) # ./dev bench real asks for it
tuckfold_compile(real_bench)
set_target_properties(real_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
tuckfold_use(real_bench codec)
target_link_libraries(real_bench PRIVATE nlohmann_json::nlohmann_json)

add_executable(file_bench EXCLUDE_FROM_ALL bench/cpu/file_bench.cc) # ./dev bench files asks for it
tuckfold_compile(file_bench)
set_target_properties(file_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
tuckfold_use(file_bench container inputs)
target_link_libraries(file_bench PRIVATE nlohmann_json::nlohmann_json)

# Device files, where the tool looks for them: of this tree, so that one more file is seen at once.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/tuckfold)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/devices ${CMAKE_BINARY_DIR}/share/tuckfold/devices SYMBOLIC)

# Manual pages and completions, which the tool makes from its own options.
set(pages ${CMAKE_BINARY_DIR}/share)
add_custom_command(
  OUTPUT ${pages}/stamp
  COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}/completions
  COMMAND tuckfold_tool man --out ${pages}/man1
  COMMAND tuckfold_tool completion bash > ${pages}/completions/tuckfold
  COMMAND tuckfold_tool completion zsh > ${pages}/completions/_tuckfold
  COMMAND tuckfold_tool completion fish > ${pages}/completions/tuckfold.fish
  COMMAND ${CMAKE_COMMAND} -E touch ${pages}/stamp
  DEPENDS tuckfold_tool
  VERBATIM)
add_custom_target(tuckfold_pages ALL DEPENDS ${pages}/stamp)
