/* sweep_page.c - the page: what is shown as JSON, and a little script that draws it.
 *
 *      sweep ─► {columns, rows: axes, x, series, numbers} ─► </script> never occurs in it ─► page
 */
#include "sweep_page.h"
#include "sweep_report.h"

#include <stdlib.h>
#include <string.h>

static const char *const head[] = {
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">",
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">",
    "<title>Quire sweep</title><style>",
    ":root{--bg:#fbfaf7;--card:#fff;--ink:#1d2226;--soft:#667078;--line:#e3e1da;",
    "--c0:#0f6e84;--c1:#c2571a;--c2:#6a4fa3;--c3:#3c7d3a;--c4:#b03060;--c5:#8a6d00;--c6:#2b5fc0;",
    "--c7:#5c5c5c}",
    "@media(prefers-color-scheme:dark){:root{--bg:#14181b;--card:#1c2226;--ink:#e8e6e1;",
    "--soft:#98a2a8;--line:#333b40;--c0:#4fc3d9;--c1:#f2975a;--c2:#b79cf0;--c3:#7cc77a;",
    "--c4:#f07aa8;--c5:#e0c04a;--c6:#7fa8ff;--c7:#b5b5b5}}",
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);",
    "font:15px/1.5 system-ui,sans-serif}main{max-width:1200px;margin:auto;padding:20px 16px 48px}",
    "h1{font-size:22px;margin:0}h2{font-size:15px;margin:0 0 8px}p{color:var(--soft);margin:4px 0 "
    "18px}",
    ".grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:"
    "16px}",
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px;",
    "min-width:0}svg{width:100%;display:block}svg text{fill:var(--soft);font-size:11px}",
    ".tick{stroke:var(--line)}.legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;",
    "margin:0 0 14px}.legend i{display:inline-block;width:14px;height:3px;margin-right:6px;",
    "vertical-align:middle}.table{overflow-x:auto;margin-top:16px}table{border-collapse:collapse;",
    "width:100%;font-variant-numeric:tabular-nums}th,td{padding:5px 10px;text-align:right;",
    "border-bottom:1px solid var(--line);white-space:nowrap}th{cursor:pointer;font-weight:600}",
    "th:focus-visible{outline:2px solid var(--c0)}tr.on td{background:var(--line)}",
    "td.bad{color:var(--c1);text-align:left;white-space:normal}",
    "#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--bg);padding:4px "
    "8px;",
    "border-radius:4px;font-size:12px;display:none;white-space:pre;z-index:2}",
    "</style></head><body><main><h1>Sweep</h1><p id=\"sub\"></p><div class=\"legend\" "
    "id=\"legend\">",
    "</div><div class=\"grid\" id=\"plots\"></div><div class=\"card table\"><table id=\"table\">",
    "</table></div></main><div id=\"tip\"></div><script id=\"data\" type=\"application/json\">",
    NULL};

static const char *const tail[] = {
    "</script><script>\n'use strict';\n",
    "const D=JSON.parse(document.getElementById('data').textContent);\n",
    "const $=id=>document.getElementById(id),NS='http://www.w3.org/2000/svg';\n",
    "const el=(tag,at,text)=>{const e=document.createElementNS(NS,tag);for(const k in at)\n",
    " e.setAttribute(k,at[k]);if(text!==undefined)e.textContent=text;return e};\n",
    "const fmt=(v,d)=>v===null?'-':v.toLocaleString('en',{minimumFractionDigits:d,",
    "maximumFractionDigits:d});\n",
    "const series=[...new Set(D.rows.filter(r=>r.x!==null).map(r=>r.series))];\n",
    "const color=s=>'var(--c'+Math.max(0,series.indexOf(s))%8+')';\n",
    "$('sub').textContent=D.trace+': '+D.rows.length+' replays'+(D.fixed?'; '+D.fixed:'');\n",
    "if(series.length>1)for(const s of series){const e=document.createElement('span'),\n",
    " i=document.createElement('i');i.style.background=color(s);e.append(i,s);$('legend').append(e)"
    "}\n",
    "const step=v=>{const p=10**Math.floor(Math.log10(v)),t=v/p;",
    "return p*(t<=1?1:t<=2?2:t<=5?5:10)};\n",
    "function tip(ev,text){const t=$('tip');t.textContent=text;t.style.display='block';\n",
    " const w=t.offsetWidth;t.style.left=Math.min(ev.clientX+12,innerWidth-w-8)+'px';\n",
    " t.style.top=Math.max(4,ev.clientY-34)+'px'}\n",
    "function mark(i){document.querySelectorAll('#table tbody tr').forEach(r=>\n",
    " r.classList.toggle('on',+r.dataset.i===i))}\n",
    "function draw(c){const W=480,H=260,L=54,R=14,T=10,B=38;\n",
    " const rows=D.rows.map((r,i)=>({x:r.x,y:r.v[c.i],s:r.series,i})).filter(r=>r.x!==null&&\n",
    "  r.y!==null);if(!rows.length)return;\n",
    " const xs=rows.map(r=>r.x),ym=Math.max(...rows.map(r=>r.y),1e-9);\n",
    " const "
    "x0=Math.min(0,...xs),x1=Math.max(...xs,x0+1e-9),ys=step(ym/4),y1=ys*Math.ceil(ym/ys);\n",
    " const X=x=>L+(x-x0)/(x1-x0)*(W-L-R),Y=y=>H-B-y/y1*(H-B-T);\n",
    " const svg=el('svg',{viewBox:`0 0 ${W} ${H}`,role:'img','aria-label':c.title});\n",
    " for(let y=0;y<=y1*1.0001;y+=ys){svg.append(el('line',{x1:L,x2:W-R,y1:Y(y),y2:Y(y),\n",
    "  class:'tick'}),el('text',{x:L-6,y:Y(y)+4,'text-anchor':'end'},+y.toPrecision(6)))}\n",
    " const q=step((x1-x0)/6);for(let x=Math.ceil(x0/q)*q;x<=x1*1.0001;x+=q)\n",
    "  svg.append(el('text',{x:X(x),y:H-B+16,'text-anchor':'middle'},+x.toPrecision(6)));\n",
    " svg.append(el('text',{x:(L+W-R)/2,y:H-6,'text-anchor':'middle'},D.x_name));\n",
    " for(const s of series){const p=rows.filter(r=>r.s===s).sort((a,b)=>a.x-b.x);\n",
    "  svg.append(el('polyline',{points:p.map(r=>X(r.x)+','+Y(r.y)).join(' '),fill:'none',\n",
    "   stroke:color(s),'stroke-width':2}));\n",
    "  for(const r of p){const d=el('circle',{cx:X(r.x),cy:Y(r.y),r:4,fill:color(s)});\n",
    "   const h=el('circle',{cx:X(r.x),cy:Y(r.y),r:12,fill:'transparent'});\n",
    "   h.onmousemove=ev=>{tip(ev,(s?s+'\\n':'')+D.x_name+' '+fmt(r.x,2)+'\\n'+c.title+' '+\n",
    "    fmt(r.y,c.d));mark(r.i)};h.onmouseleave=()=>{$('tip').style.display='none';mark(-1)};\n",
    "   svg.append(d,h)}}\n",
    " const card=document.createElement('div');card.className='card';\n",
    " const h=document.createElement('h2');h.textContent=c.title;card.append(h,svg);\n",
    " $('plots').append(card)}\n",
    "if(D.x_name)D.plots.forEach(draw);\n",
    "let order=D.rows.map((_,i)=>i),by=null,up=true;\n",
    "function cell(tag,text,c){const e=document.createElement(tag);e.textContent=text;\n",
    " if(c)e.className=c;return e}\n",
    "function table(){const t=$('table');t.textContent='';const h=t.createTHead().insertRow();\n",
    " const heads=[...D.axes,...D.columns.map(c=>c.head)];\n",
    " heads.forEach((name,i)=>{const e=cell('th',name+(by===i?(up?' \\u2191':' \\u2193'):''));\n",
    "  e.tabIndex=0;e.onclick=()=>sort(i);e.onkeydown=ev=>{if(ev.key==='Enter')sort(i)};\n",
    "  h.append(e)});\n",
    " const b=t.createTBody();for(const i of order){const r=D.rows[i],tr=b.insertRow();\n",
    "  tr.dataset.i=i;r.axes.forEach(v=>tr.append(cell('td',v)));\n",
    "  if(r.error){const e=cell('td',r.error,'bad');e.colSpan=D.columns.length;tr.append(e)}\n",
    "  else r.v.forEach((v,k)=>tr.append(cell('td',fmt(v,D.columns[k].decimals))))}}\n",
    "function sort(i){up=by===i?!up:true;by=i;const n=D.axes.length;\n",
    " const key=r=>i<n?(isNaN(parseFloat(r.axes[i]))?r.axes[i]:parseFloat(r.axes[i])):\n",
    "  r.v?r.v[i-n]:null;\n",
    " order.sort((a,b)=>{const p=key(D.rows[a]),q=key(D.rows[b]);\n",
    "  return(p<q?-1:p>q?1:a-b)*(up?1:-1)});table()}\n",
    "table();\n</script></body></html>\n",
    NULL};

static json_t *columns_object(const sweep *s)
{
    json_t *columns = json_array();
    for (const sweep_column *c = sweep_columns(s); c->path != NULL; c++)
        json_array_append_new(columns, json_pack("{s:s, s:s, s:i}", "path", c->path, "head",
                                                 c->head, "decimals", c->decimals));
    return columns;
}

static json_t *row_object(const sweep *s, uint32_t axis, uint32_t point)
{
    json_t *axes = json_array();
    for (uint32_t a = 0; a < s->num_axes; a++)
        if (sweep_varies(s, a))
            json_array_append_new(axes, json_string(sweep_value(s, point, a)));
    json_t *numbers = json_array();
    for (const sweep_column *c = sweep_columns(s); c->path != NULL; c++) {
        double number;
        bool has = sweep_number(s, point, c->path, &number);
        json_array_append_new(numbers, has ? json_real(number * c->factor) : json_null());
    }
    char series[256] = "";
    double x;
    bool has_x = axis < s->num_axes && sweep_plot_x(s, axis, point, &x);
    if (axis < s->num_axes)
        sweep_plot_series(s, axis, point, series, sizeof series);
    json_t *row = json_pack("{s:o, s:o, s:s, s:o}", "axes", axes, "v", numbers, "series", series,
                            "x", has_x ? json_real(x) : json_null());
    if (s->points[point].error != NULL)
        json_object_set_new(row, "error", json_string(s->points[point].error));
    return row;
}

/* Which columns are drawn, by their place. */
static json_t *plots_object(void)
{
    return json_pack("[{s:s,s:i,s:i}, {s:s,s:i,s:i}, {s:s,s:i,s:i}, {s:s,s:i,s:i}]", "title",
                     "Hit rate (%)", "i", 1, "d", 2, "title", "Time to first token, p99 (ms)", "i",
                     3, "d", 1, "title", "Time per output token, p50 (ms)", "i", 4, "d", 2, "title",
                     "Output tokens per second", "i", 7, "d", 0);
}

static json_t *page_object(const sweep *s)
{
    char fixed[1024] = "";
    size_t used = 0;
    uint32_t axis = sweep_plot_axis(s);
    json_t *names = json_array();
    json_t *rows = json_array();
    for (uint32_t i = 0; i < s->num_axes; i++) {
        if (sweep_varies(s, i))
            json_array_append_new(names, json_string(s->axes[i].option->name));
        else if (used < sizeof fixed)
            used +=
                (size_t)snprintf(fixed + used, sizeof fixed - used, "%s%s %s", used > 0 ? ", " : "",
                                 s->axes[i].option->name, s->axes[i].list.values[0]);
    }
    for (uint32_t i = 0; i < s->num_points; i++)
        json_array_append_new(rows, row_object(s, axis, i));
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "trace", s->trace, "fixed", fixed,
                     "x_name", axis < s->num_axes ? sweep_plot_x_name(s, axis) : "", "axes", names,
                     "columns", columns_object(s), "plots", plots_object(), "rows", rows);
}

/* In a script's text "</script" would end it: "<" is written as JSON's \u003c. */
static void write_data(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '<')
            fputs("\\u003c", out);
        else
            fputc(*text, out);
    }
}

bool sweep_page_write(FILE *out, const sweep *s)
{
    json_t *object = page_object(s);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    if (text == NULL)
        return false;
    for (size_t i = 0; head[i] != NULL; i++)
        fputs(head[i], out);
    write_data(out, text);
    for (size_t i = 0; tail[i] != NULL; i++)
        fputs(tail[i], out);
    free(text);
    return ferror(out) == 0;
}
