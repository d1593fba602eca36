# All pages are written, and roff has no complaint about them.
"$TUCKFOLD" man --out pages
ls pages
"$TUCKFOLD" man >one
cmp one pages/tuckfold.1
command -v groff >/dev/null || exit 0
for page in pages/*; do groff -man -ww -z $page; done
