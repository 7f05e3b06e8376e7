# Kernels for NVIDIA cards as one file that the program carries: native code of three generations, and PTX for later ones.
# Without nvcc the program has none, and `trireme info` says so. ptxas.txt beside it tells registers and spills.
option(TRI_CUDA "kernels for NVIDIA cards, where there is an nvcc" ON)
set(TRI_CUDA_IMAGE "" CACHE INTERNAL "")
if(TRI_CUDA AND NOT TRI_SANITIZE)
  find_program(TRI_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_PATH PATH_SUFFIXES bin)
endif()
if(TRI_CUDA AND NOT TRI_SANITIZE AND TRI_NVCC)
  execute_process(COMMAND ${TRI_NVCC} --list-gpu-arch OUTPUT_VARIABLE generations ERROR_QUIET)
  if(NOT generations MATCHES "compute_80")
    message(STATUS "${TRI_NVCC} makes no code for compute capability 8.0: no kernels for NVIDIA cards")
    set(TRI_NVCC "")
  endif()
endif()
# The text of the kernels, of what launches them and of their compiler's flags, as a hash that does not see comments and
# spaces: a part of what the bits depend on (docs/bits.md), with nvcc and without.
set(source ${CMAKE_SOURCE_DIR}/src/kernel/gpu)
file(GLOB texts CONFIGURE_DEPENDS ${source}/*)
list(APPEND texts ${CMAKE_SOURCE_DIR}/cmake/compile_kernels)
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${texts})
set(all "")
foreach(file IN LISTS texts)
  file(READ ${file} text)
  string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" text "${text}")
  string(REGEX REPLACE "[ \t\r\n]+" "" text "${text}")
  string(APPEND all "${text}")
endforeach()
string(SHA256 all "${all}")
string(SUBSTRING ${all} 0 8 all)
set(TRI_CUDA_TEXT ${all} CACHE INTERNAL "")

if(TRI_CUDA AND NOT TRI_SANITIZE AND TRI_NVCC)
  set(TRI_CUDA_IMAGE ${CMAKE_BINARY_DIR}/cuda/kernels.fatbin CACHE INTERNAL "")
  execute_process(COMMAND ${TRI_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9]+)" version "${version}")
  set(TRI_CUDA_VERSION ${CMAKE_MATCH_1} CACHE INTERNAL "") # drivers load kernels of their own major version and older ones
  file(GLOB parts CONFIGURE_DEPENDS ${source}/*.cu ${source}/gpu.h ${source}/attention.h ${source}/gemm.h ${source}/lanes.h ${source}/math.h ${source}/philox.h ${source}/args.h)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda)
  add_custom_command(OUTPUT ${TRI_CUDA_IMAGE}
    COMMAND ${CMAKE_SOURCE_DIR}/cmake/compile_kernels ${TRI_NVCC} ${TRI_CUDA_IMAGE} ${source}/kernels.cu ${CMAKE_SOURCE_DIR}/src
    DEPENDS ${parts} ${CMAKE_SOURCE_DIR}/cmake/compile_kernels COMMENT "nvcc: kernels for NVIDIA cards" VERBATIM)
endif()
