window.classic = (name) => import(`./js/plugins/${name}/${name}.js`)
;[1].map(() => 1)