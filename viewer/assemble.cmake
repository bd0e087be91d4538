# Makes one HTML text of the parts in this folder and writes it as C: what stands before the data and
# what behind it.
#   cmake -DSOURCE=viewer -DOUTPUT=viewer_page.c [-DHTML=template.html] -P assemble.cmake
set(scripts data.js format.js pyramid.js view.js theme.js draw.js charts.js overview.js timeline.js
  blockmap.js latency.js tables.js main.js)

file(READ ${SOURCE}/page.html page)
file(READ ${SOURCE}/page.css css)
set(script "")
foreach(name IN LISTS scripts)
  file(READ ${SOURCE}/${name} part)
  string(APPEND script "${part}\n")
endforeach()
string(REPLACE "/*CSS*/" "${css}" page "${page}")
string(REPLACE "/*SCRIPT*/" "${script}" page "${page}")

string(FIND "${page}" "@DATA@" place)
if(place LESS 0)
  message(FATAL_ERROR "page.html has no place for the data")
endif()
string(SUBSTRING "${page}" 0 ${place} head)
math(EXPR behind "${place} + 6")
string(SUBSTRING "${page}" ${behind} -1 tail)
if(HTML)
  file(WRITE ${HTML} "${page}")
endif()

# An array of numbers: string literals may not be this long.
function(append_array name text)
  file(WRITE ${OUTPUT}.part "${text}")
  file(READ ${OUTPUT}.part bytes HEX)
  file(REMOVE ${OUTPUT}.part)
  string(REPEAT "." 28 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  file(APPEND ${OUTPUT} "const char ${name}[] = {\n${bytes}};\nconst size_t ${name}_bytes = sizeof ${name};\n")
endfunction()

file(WRITE ${OUTPUT} "#include \"viewer_page.h\"\n\n")
append_array(viewer_head "${head}")
append_array(viewer_tail "${tail}")
