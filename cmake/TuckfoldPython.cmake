# What the Python package is made of besides Python: libtuckfold_c.so, where there is a torch the
# operators, and the libraries that a user's machine may lack, all in one folder.
if(TARGET Torch::FromPip)
  # One binary serves many versions of torch, so it takes headers of the stable ABI and the name of
  # libtorch_cpu, nothing else. torch is loaded before it, and so found without a path.
  get_target_property(torch_include Torch::FromPip INTERFACE_INCLUDE_DIRECTORIES)
  get_target_property(torch_library Torch::FromPip IMPORTED_LOCATION)
  add_library(tuckfold_torch MODULE src/torch/images.cc src/torch/loss.cc src/torch/ops.cc src/torch/structured.cc)
  tuckfold_compile(tuckfold_torch)
  target_compile_definitions(tuckfold_torch PRIVATE TORCH_TARGET_VERSION=0x020a000000000000)
  target_include_directories(tuckfold_torch PRIVATE include src)
  target_include_directories(tuckfold_torch SYSTEM PRIVATE ${torch_include})
  target_link_libraries(tuckfold_torch PRIVATE tuckfold_c ${CMAKE_DL_LIBS})
  target_link_options(tuckfold_torch PRIVATE LINKER:--no-as-needed,${torch_library},--as-needed
                                             LINKER:--allow-shlib-undefined)
  set_target_properties(tuckfold_torch PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python
                                                  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH $ORIGIN)
endif()

# The hooks of saved tensors in C++ use torch's own API, so they are for one version of torch, which
# is in the library's name. Python does the same where they are missing.
if(TARGET Torch::FromPip AND TorchFromPip_VERSION MATCHES "^${TorchFromPip_PIN}")
  add_library(tuckfold_hooks MODULE src/torch/hooks/api.cc src/torch/hooks/forms.cc src/torch/hooks/kinds.cc
                                    src/torch/hooks/pass.cc src/torch/hooks/recipe.cc src/torch/hooks/replay.cc
                                    src/torch/hooks/saved.cc)
  tuckfold_compile(tuckfold_hooks)
  get_target_property(torch_abi Torch::FromPip INTERFACE_COMPILE_DEFINITIONS)
  target_compile_definitions(tuckfold_hooks PRIVATE ${torch_abi})
  target_include_directories(tuckfold_hooks PRIVATE src)
  target_include_directories(tuckfold_hooks SYSTEM PRIVATE ${torch_include})
  target_link_options(tuckfold_hooks PRIVATE LINKER:--no-as-needed,${torch_library},--as-needed
                                             LINKER:--allow-shlib-undefined)
  set_target_properties(tuckfold_hooks PROPERTIES OUTPUT_NAME tuckfold_hooks-${TorchFromPip_PIN}
                                                  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python
                                                  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH $ORIGIN)
endif()

# The HDF5 filter, in a folder of its own: HDF5 opens every library of its plug-in path.
enable_language(C)
add_library(tuckfold_hdf5_filter MODULE plugins/hdf5/filter.c)
set_target_properties(tuckfold_hdf5_filter PROPERTIES OUTPUT_NAME h5z_tuckfold C_STANDARD 99 C_STANDARD_REQUIRED ON
                                                      C_EXTENSIONS OFF C_VISIBILITY_PRESET hidden
                                                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/hdf5
                                                      BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH $ORIGIN/..)
target_compile_options(tuckfold_hdf5_filter PRIVATE -Wall -Wextra -Wpedantic)
if(TUCKFOLD_WERROR)
  target_compile_options(tuckfold_hdf5_filter PRIVATE -Werror)
endif()
target_link_libraries(tuckfold_hdf5_filter PRIVATE tuckfold_c)

add_custom_target(tuckfold_python DEPENDS tuckfold_c tuckfold_hdf5_filter
                                          $<TARGET_NAME_IF_EXISTS:tuckfold_torch>
                                          $<TARGET_NAME_IF_EXISTS:tuckfold_hooks>)
if(SKBUILD AND TARGET tuckfold_tool)
  add_dependencies(tuckfold_python tuckfold_tool)
endif()

if(SKBUILD)
  foreach(target tuckfold_c tuckfold_torch tuckfold_hooks)
    if(TARGET ${target})
      install(TARGETS ${target} LIBRARY DESTINATION . COMPONENT python)
    endif()
  endforeach()
  install(TARGETS tuckfold_hdf5_filter LIBRARY DESTINATION hdf5 COMPONENT python)
  # Debian's static archives are not position independent, so its shared ones go along.
  foreach(target hwy::hwy fmt::fmt zstd::libzstd_shared)
    install(FILES $<TARGET_FILE:${target}> RENAME $<TARGET_SONAME_FILE_NAME:${target}>
            DESTINATION . COMPONENT python)
  endforeach()
  # Their licences, as Debian's packages have them.
  foreach(name libhwy libfmt libzstd)
    file(GLOB copyright /usr/share/doc/${name}[0-9]*/copyright)
    if(copyright)
      install(FILES ${copyright} RENAME ${name}.txt DESTINATION licenses COMPONENT python)
    else()
      message(STATUS "The licence of ${name} is not found; a wheel to give away needs it")
    endif()
  endforeach()
  # `tuckfold` in the environment's bin is a script that runs this.
  if(TARGET tuckfold_tool)
    set_target_properties(tuckfold_tool PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH $ORIGIN/..)
    install(TARGETS tuckfold_tool RUNTIME DESTINATION bin COMPONENT python)
    install(DIRECTORY devices DESTINATION share/tuckfold COMPONENT python FILES_MATCHING PATTERN *.json)
  endif()
endif()
