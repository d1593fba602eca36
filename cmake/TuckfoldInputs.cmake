# The readers of inputs, src/container/source*: for the command line and its tests. They stay out of
# the library, so that whoever unpacks needs none of the libraries that files of others need.
find_package(ZLIB REQUIRED)

file(GLOB input_sources CONFIGURE_DEPENDS src/container/source*.cc)
list(FILTER input_sources EXCLUDE REGEX "_test\\.cc$")
add_library(tuckfold_inputs OBJECT)
tuckfold_compile(tuckfold_inputs)
target_link_libraries(tuckfold_inputs PUBLIC tuckfold_objects ZLIB::ZLIB)

# Without a library source_no_NAME.cc stands in, and says so to whoever has such a file.
macro(tuckfold_input_library name target source)
  if(TARGET ${target})
    list(FILTER input_sources EXCLUDE REGEX "/source_no_${name}\\.cc$")
    target_link_libraries(tuckfold_inputs PUBLIC ${target})
  else()
    message(STATUS "Inputs of ${name} left out: its library is not found")
    list(FILTER input_sources EXCLUDE REGEX "/${source}\\.cc$")
  endif()
endmacro()
find_package(PNG QUIET)
tuckfold_input_library(png PNG::PNG source_image_png)
find_package(JPEG QUIET)
tuckfold_input_library(jpeg JPEG::JPEG source_image_jpeg)
find_package(TIFF QUIET)
tuckfold_input_library(tiff TIFF::TIFF source_image_tiff)
enable_language(C) # FindHDF5 asks a C compiler
find_package(HDF5 QUIET COMPONENTS C)
tuckfold_input_library(hdf5 hdf5::hdf5 source_hdf5)
if(TARGET hdf5::hdf5)
  target_compile_definitions(tuckfold_inputs INTERFACE TUCKFOLD_TEST_HDF5)
endif()
target_sources(tuckfold_inputs PRIVATE ${input_sources})
