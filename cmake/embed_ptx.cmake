# cmake -DNAME=name -DPTX=file -DOUTPUT=name.c -P embed_ptx.cmake: a text as C, with a NUL at its end.
set(bytes "")
if(PTX)
  file(READ ${PTX} bytes HEX)
  string(REPEAT "." 28 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
endif()
file(WRITE ${OUTPUT} "#include <stddef.h>\n\nextern const char ${NAME}[];\nextern const size_t ${NAME}_bytes;\n\n"
  "const char ${NAME}[] = {\n${bytes}'\\0'};\nconst size_t ${NAME}_bytes = sizeof ${NAME} - 1;\n")
