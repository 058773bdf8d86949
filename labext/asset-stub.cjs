// What Jest sees where a bundle would have a style sheet or picture.
module.exports = '';
