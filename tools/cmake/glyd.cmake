# glyd_library(NAME SRCS ... DEPS ...), glyd_program(...), glyd_test(...): a target with the project's flags.

find_program(GLYD_CCACHE ccache)
if(GLYD_CCACHE)
  # ccache sees a precompiled header by its content only with these.
  set(GLYD_CCACHE_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${GLYD_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${GLYD_CCACHE_LAUNCHER})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${GLYD_CCACHE_LAUNCHER})
endif()

add_library(glyd_flags INTERFACE)
target_include_directories(glyd_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(glyd_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(glyd_flags INTERFACE -fpch-preprocess)
else()
  target_compile_options(glyd_flags INTERFACE -Wthread-safety)
endif()
if(GLYD_SANITIZE)
  add_compile_options(-fsanitize=${GLYD_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${GLYD_SANITIZE})
  if(GLYD_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

if("thread" IN_LIST GLYD_SANITIZE)
  set(GLYD_TSAN glyd_tsan)
endif()

if(GLYD_FUZZ)
  # Coverage of what is fuzzed, not of the targets alone.
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()

function(glyd_library name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SRCS})
  target_link_libraries(${name} PUBLIC glyd_flags ${A_DEPS})
endfunction()

function(glyd_program name)
  cmake_parse_arguments(A "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${A_SRCS})
  target_link_libraries(${name} PRIVATE glyd_flags ${GLYD_TSAN} ${A_DEPS})
endfunction()

# glyd_test(NAME SRCS ... DEPS ... [PROGRAMS target ...] [LABEL quick|slow]): each TEST is a ctest entry.
# Tests find data and programs by the environment: GLYD_SOURCE_DIR, GLYD_BIN_DIR.
function(glyd_test name)
  if(NOT GLYD_TESTS)
    return()
  endif()
  cmake_parse_arguments(A "" "LABEL;TIMEOUT" "SRCS;DEPS;PROGRAMS" ${ARGN})
  if(NOT A_LABEL)
    set(A_LABEL quick)
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  add_executable(${name} ${A_SRCS})
  target_link_libraries(${name} PRIVATE glyd_flags ${GLYD_TSAN} ${A_DEPS} GTest::gmock GTest::gtest_main)
  if(A_PROGRAMS)
    add_dependencies(${name} ${A_PROGRAMS})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS ${A_LABEL} TIMEOUT ${A_TIMEOUT}
    # One variable a property: a list does not survive the discovery before the test.
    ENVIRONMENT "GLYD_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
    ENVIRONMENT_MODIFICATION "GLYD_BIN_DIR=set:${CMAKE_BINARY_DIR}/bin")
endfunction()

# glyd_fuzz(NAME SRCS ... DEPS ... [RUNS N]): a libFuzzer target NAME_fuzz where they are built, and in every build a test
# NAME_fuzz_smoke that runs the same entry over tests/fuzz/seeds/NAME and N made-up changes of them.
function(glyd_fuzz name)
  cmake_parse_arguments(A "" "RUNS" "SRCS;DEPS" ${ARGN})
  if(NOT A_RUNS)
    set(A_RUNS 20000)
  endif()
  if(GLYD_FUZZ)
    glyd_program(${name}_fuzz SRCS ${A_SRCS} DEPS ${A_DEPS})
    target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
    if(NOT TARGET fuzzers)
      add_custom_target(fuzzers)
    endif()
    add_dependencies(fuzzers ${name}_fuzz)
  else()
    glyd_test(${name}_fuzz_smoke SRCS ${A_SRCS} ${PROJECT_SOURCE_DIR}/tests/fuzz/smoke_test.cc DEPS ${A_DEPS})
    if(GLYD_TESTS)
      target_compile_definitions(${name}_fuzz_smoke PRIVATE
        GLYD_FUZZ_RUNS=${A_RUNS} GLYD_FUZZ_SEEDS="${PROJECT_SOURCE_DIR}/tests/fuzz/seeds/${name}")
    endif()
  endif()
endfunction()
