touch file
"$TUCKFOLD" man --out file/pages
