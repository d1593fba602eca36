# libtuckfold_c.so: the library, which exports only the C API, for languages that load it by name.
# Libraries that a user's machine may lack are in the same folder, where it finds them.
add_library(tuckfold_c SHARED)
set(tuckfold_c_exports ${CMAKE_CURRENT_SOURCE_DIR}/src/capi/exports.map)
target_include_directories(tuckfold_c INTERFACE $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
tuckfold_use(tuckfold_c capi)
target_link_options(tuckfold_c PRIVATE LINKER:--version-script=${tuckfold_c_exports})
set_target_properties(tuckfold_c PROPERTIES LINK_DEPENDS ${tuckfold_c_exports}
                                            LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python
                                            BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH $ORIGIN)
if(NOT SKBUILD) # a wheel has no links, and loads the library by its path
  set_target_properties(tuckfold_c PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
endif()
