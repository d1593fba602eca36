# The readers of inputs, src/container/source*: for the command line and its tests. They stay out of
# the library, so that whoever unpacks needs none of the libraries that files of others need.
find_package(ZLIB REQUIRED)

file(GLOB input_sources CONFIGURE_DEPENDS src/container/source*.cc)
list(FILTER input_sources EXCLUDE REGEX "_test\\.cc$")
add_library(tuckfold_inputs OBJECT ${input_sources})
tuckfold_compile(tuckfold_inputs)
target_link_libraries(tuckfold_inputs PUBLIC tuckfold_objects ZLIB::ZLIB)
