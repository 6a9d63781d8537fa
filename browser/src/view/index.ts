/** The view runtime: single owner of the page's connection to its host. */
export {};
