# One object library per folder, with the same strict flags; a test links the folders it names.
add_library(tri_flags INTERFACE)
target_compile_options(tri_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wvla -Werror -ffp-contract=off -fno-math-errno -fno-trapping-math
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>)
target_compile_definitions(tri_flags INTERFACE _GNU_SOURCE TRI_VERSION="${PROJECT_VERSION}")
target_include_directories(tri_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(tri_flags INTERFACE Threads::Threads m)
if(TRI_OPENMP)
  target_link_libraries(tri_flags INTERFACE OpenMP::OpenMP_C)
else()
  target_compile_options(tri_flags INTERFACE -Wno-unknown-pragmas)
endif()
if(TRI_SANITIZE)
  target_compile_options(tri_flags INTERFACE -fsanitize=${TRI_SANITIZE} -fno-omit-frame-pointer -g -O1)
  target_link_options(tri_flags INTERFACE -fsanitize=${TRI_SANITIZE})
  if(NOT TRI_SANITIZE STREQUAL "thread")
    target_compile_options(tri_flags INTERFACE -fno-sanitize-recover=all)
  endif()
endif()

# tri_folder(base SOURCES a.c b.c LIBRARIES PkgConfig::YAML)
function(tri_folder name)
  cmake_parse_arguments(F "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(tri_${name} OBJECT ${F_SOURCES})
  target_link_libraries(tri_${name} PUBLIC tri_flags ${F_LIBRARIES})
endfunction()

# tri_test(unit/base/test_rng FOLDERS base [SOURCES extra.c] [ARGS ...] [LABELS ...] [TIMEOUT 60])
# builds tests/<path>.c with the named folders and adds it to CTest. Tests run two at a time; those with processes
# that want a core each (ranks/, process/) have the machine for themselves.
function(tri_test path)
  cmake_parse_arguments(T "" "TIMEOUT" "FOLDERS;SOURCES;ARGS;LABELS" ${ARGN})
  string(REPLACE "/" "_" target ${path})
  add_executable(${target} ${CMAKE_SOURCE_DIR}/tests/${path}.c ${T_SOURCES})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${target} PRIVATE tri_flags PkgConfig::CMOCKA)
  foreach(folder ${T_FOLDERS})
    target_link_libraries(${target} PRIVATE tri_${folder})
  endforeach()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  if(TRI_SANITIZE) # loops over bytes are ten times slower
    math(EXPR T_TIMEOUT "4 * ${T_TIMEOUT}")
  endif()
  add_test(NAME ${path} COMMAND ${target} ${T_ARGS})
  set_tests_properties(${path} PROPERTIES TIMEOUT ${T_TIMEOUT} COST ${T_TIMEOUT} LABELS "${T_LABELS}") # the long ones first
  if(path MATCHES "^(ranks|process)/")
    set_tests_properties(${path} PROPERTIES PROCESSORS 2)
  endif()
endfunction()

# tri_script(process/train train.py TIMEOUT 300 [ARGS ...]) adds a script of the folder to CTest; it is given the program
# and ARGS. 77 as its exit code: skipped, for a reason that it says. Scripts run alone: they look at the whole machine,
# or kill and stop processes at moments that other work would move.
function(tri_script name script)
  cmake_parse_arguments(T "" "TIMEOUT" "ARGS" ${ARGN})
  set(interpreter)
  if(script MATCHES "\\.py$")
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    set(interpreter ${Python3_EXECUTABLE})
  endif()
  add_test(NAME ${name} COMMAND ${interpreter} ${CMAKE_CURRENT_SOURCE_DIR}/${script} $<TARGET_FILE:trireme> ${T_ARGS})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT} COST ${T_TIMEOUT} SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endfunction()
