# quire_beside(NAME DESCRIPTION TEXT SOURCES ... INCLUDES ... LIBRARIES ... REQUIRES ...)
# libquire_NAME, static and shared, from a room beside the core: on libquire and LIBRARIES (files, or targets),
# which pkg-config knows as REQUIRES. The shared one has base inside; the static one takes it from libquire.a.
function(quire_beside name)
  cmake_parse_arguments(arg "" "DESCRIPTION" "SOURCES;INCLUDES;LIBRARIES;REQUIRES" ${ARGN})
  set(lib quire_${name})
  add_library(${lib}_objects OBJECT ${arg_SOURCES})
  set_target_properties(${lib}_objects PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden
    UNITY_BUILD OFF)
  target_include_directories(${lib}_objects PUBLIC ${PROJECT_SOURCE_DIR}/include
    PRIVATE ${PROJECT_SOURCE_DIR}/src ${arg_INCLUDES})
  target_compile_definitions(${lib}_objects PRIVATE QUIRE_ASSERT_LEVEL=${QUIRE_ASSERT_LEVEL})
  target_link_libraries(${lib}_objects PRIVATE Threads::Threads quire_build_options)

  add_library(${lib}_static STATIC $<TARGET_OBJECTS:${lib}_objects>)
  add_library(${lib} SHARED $<TARGET_OBJECTS:${lib}_objects> $<TARGET_OBJECTS:quire_base_objects>)
  # An installed library does not name this machine's files.
  set(others "")
  foreach(library ${arg_LIBRARIES})
    if(TARGET ${library})
      list(APPEND others ${library})
    else()
      get_filename_component(short ${library} NAME_WE)
      string(REGEX REPLACE "^lib" "" short ${short})
      list(APPEND others $<BUILD_INTERFACE:${library}> $<INSTALL_INTERFACE:${short}>)
    endif()
  endforeach()
  target_link_libraries(${lib}_static PUBLIC quire_static PRIVATE ${others} Threads::Threads)
  target_link_libraries(${lib} PUBLIC quire PRIVATE ${others} Threads::Threads
    $<BUILD_INTERFACE:quire_build_options>)
  if(NOT QUIRE_SANITIZE)
    target_link_options(${lib} PRIVATE LINKER:-z,defs) # of libquire only what it exports
  endif()
  set_target_properties(${lib}_static ${lib} PROPERTIES OUTPUT_NAME ${lib} LINKER_LANGUAGE C)
  set_target_properties(${lib} PROPERTIES VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  add_library(quire::${lib} ALIAS ${lib})
  add_library(quire::${lib}_static ALIAS ${lib}_static)
  install(TARGETS ${lib} ${lib}_static EXPORT quireTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  set(QUIRE_BESIDE_NAME ${lib})
  set(QUIRE_BESIDE_DESCRIPTION ${arg_DESCRIPTION})
  list(JOIN arg_REQUIRES " " QUIRE_BESIDE_REQUIRES)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/beside.pc.in ${PROJECT_BINARY_DIR}/${lib}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${lib}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()
