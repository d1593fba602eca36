# The command line tool. It takes the library's objects rather than its exports: benchmarks use the
# library's own pool and copy.
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PNG REQUIRED)

file(GLOB cli_sources CONFIGURE_DEPENDS src/cli/*.cc)
list(FILTER cli_sources EXCLUDE REGEX "(_test|/main)\\.cc$")
add_library(tuckfold_cli_objects OBJECT ${cli_sources})
tuckfold_compile(tuckfold_cli_objects)
target_link_libraries(tuckfold_cli_objects PUBLIC tuckfold_objects CLI11::CLI11
                                                  nlohmann_json::nlohmann_json PNG::PNG
                                                  ${CMAKE_DL_LIBS})

add_executable(tuckfold_cli src/cli/main.cc)
tuckfold_compile(tuckfold_cli)
set_target_properties(tuckfold_cli PROPERTIES OUTPUT_NAME tuckfold
                                              RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
# Objects are linked where they are named, not where they are passed on.
target_link_libraries(tuckfold_cli PRIVATE tuckfold_cli_objects tuckfold_inputs tuckfold_objects
                                           tuckfold_cuda)

add_executable(file_bench EXCLUDE_FROM_ALL bench/file_bench.cc) # ./dev bench files asks for it
tuckfold_compile(file_bench)
set_target_properties(file_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
target_link_libraries(file_bench PRIVATE tuckfold_inputs tuckfold_objects tuckfold_cuda
                                         nlohmann_json::nlohmann_json)

# Manual pages and completions, which the tool makes from its own options.
set(pages ${CMAKE_BINARY_DIR}/share)
add_custom_command(
  OUTPUT ${pages}/stamp
  COMMAND ${CMAKE_COMMAND} -E make_directory ${pages}/completions
  COMMAND tuckfold_cli man --out ${pages}/man1
  COMMAND tuckfold_cli completion bash > ${pages}/completions/tuckfold
  COMMAND tuckfold_cli completion zsh > ${pages}/completions/_tuckfold
  COMMAND tuckfold_cli completion fish > ${pages}/completions/tuckfold.fish
  COMMAND ${CMAKE_COMMAND} -E touch ${pages}/stamp
  DEPENDS tuckfold_cli
  VERBATIM)
add_custom_target(tuckfold_pages ALL DEPENDS ${pages}/stamp)
