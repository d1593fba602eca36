# What `cmake --install` leaves: the headers, the library, the tool, and the files that make
# find_package(tuckfold) work from another project. The library's own dependencies stay inside it.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tuckfold)

install(TARGETS tuckfold tuckfold_c EXPORT tuckfold)
install(DIRECTORY include/tuckfold DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET tuckfold_tool)
  install(TARGETS tuckfold_tool)
  install(DIRECTORY devices DESTINATION ${CMAKE_INSTALL_DATADIR}/tuckfold FILES_MATCHING PATTERN *.json)
  install(DIRECTORY ${pages}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(FILES ${pages}/completions/tuckfold DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${pages}/completions/_tuckfold DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${pages}/completions/tuckfold.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

# pkg-config: tuckfold for C++, tuckfold_c for C. Paths start at the file itself, so that the
# installed folder can be moved.
function(tuckfold_pkg_config PC_NAME PC_DESCRIPTION)
  file(RELATIVE_PATH PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" PC_TO_PREFIX ${PC_TO_PREFIX})
  configure_file(cmake/tuckfold.pc.in ${PC_NAME}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${PC_NAME}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
tuckfold_pkg_config(tuckfold "Tensors into fewer bytes and back, for C++20")
tuckfold_pkg_config(tuckfold_c "Tensors into fewer bytes and back, for C")

install(EXPORT tuckfold NAMESPACE tuckfold:: FILE tuckfoldTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/tuckfoldConfig.cmake.in tuckfoldConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(tuckfoldConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tuckfoldConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/tuckfoldConfigVersion.cmake
        DESTINATION ${package_dir})
