# quire_live_page(TARGET): the live page as C in a target. live_page.h declares quire_live_page, the
# whole page, and quire_live_page_bytes.
set(QUIRE_VIEWER_DIR ${CMAKE_CURRENT_LIST_DIR})

function(quire_live_page target)
  set(made ${CMAKE_CURRENT_BINARY_DIR}/live_page)
  file(GLOB parts CONFIGURE_DEPENDS ${QUIRE_VIEWER_DIR}/*)
  add_custom_command(OUTPUT ${made}.c ${made}.h
    COMMAND ${CMAKE_COMMAND} -DLIVE=ON -DSOURCE=${QUIRE_VIEWER_DIR} -DOUTPUT=${made}.c
      -P ${QUIRE_VIEWER_DIR}/assemble.cmake
    DEPENDS ${parts})
  target_sources(${target} PRIVATE ${made}.c ${made}.h)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
endfunction()
