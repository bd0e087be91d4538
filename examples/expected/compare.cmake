# Runs an example and compares what it prints with a file:
#   cmake -Dprogram=[EMULATOR;]PROGRAM -Dexpected=FILE -P compare.cmake
execute_process(COMMAND ${program} OUTPUT_VARIABLE printed RESULT_VARIABLE status)
file(READ ${expected} wanted)
if(NOT status EQUAL 0)
  message("${printed}")
  message(FATAL_ERROR "ended with ${status}")
elseif(NOT printed STREQUAL wanted)
  message("${printed}")
  message(FATAL_ERROR "this is not what ${expected} says")
endif()
