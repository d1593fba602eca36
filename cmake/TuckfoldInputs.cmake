# The readers of inputs, src/container/source*: for the command line and its tests. They stay out of
# the library, so that whoever unpacks needs none of the libraries that files of others need.
find_package(ZLIB REQUIRED)

file(GLOB input_sources CONFIGURE_DEPENDS src/container/source*.cc)
list(FILTER input_sources EXCLUDE REGEX "_test\\.cc$")
add_library(tuckfold_inputs OBJECT)
tuckfold_compile(tuckfold_inputs)
target_link_libraries(tuckfold_inputs PUBLIC tuckfold_objects ZLIB::ZLIB)

# Without a library source_no_NAME.cc stands in, and says so to whoever has such a file.
function(tuckfold_input_library name package target source)
  find_package(${package} QUIET)
  if(TARGET ${target})
    list(FILTER input_sources EXCLUDE REGEX "/source_no_${name}\\.cc$")
    target_link_libraries(tuckfold_inputs PUBLIC ${target})
  else()
    message(STATUS "${package} images left out: the library is not found")
    list(FILTER input_sources EXCLUDE REGEX "/${source}\\.cc$")
  endif()
  set(input_sources ${input_sources} PARENT_SCOPE)
endfunction()
tuckfold_input_library(png PNG PNG::PNG source_image_png)
tuckfold_input_library(jpeg JPEG JPEG::JPEG source_image_jpeg)
tuckfold_input_library(tiff TIFF TIFF::TIFF source_image_tiff)
target_sources(tuckfold_inputs PRIVATE ${input_sources})
