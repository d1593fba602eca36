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
